package server

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// One thread: a tenant that asks for eight pages first does not keep the others from every second turn.
func TestTurnsGoFromTenantToTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		if err := turns.take(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		var got []string
		wait := func(tenant string) {
			go func() {
				if err := turns.take(t.Context(), tenant); err != nil {
					t.Error(err)
				}
				got = append(got, tenant) // one turn: nobody else is here
				turns.done()
			}()
			synctest.Wait()
		}
		for _, tenant := range []string{"a", "a", "a", "a", "b", "c", "b"} {
			wait(tenant)
		}
		turns.done()
		synctest.Wait()
		if want := []string{"a", "b", "c", "a", "b", "a", "a"}; !slices.Equal(got, want) {
			t.Errorf("turns went to %v, want %v", got, want)
		}
		if turns.free != 1 || len(turns.order) != 0 || len(turns.queue) != 0 {
			t.Errorf("%d free turns, %v and %v left, want 1 and none", turns.free, turns.order, turns.queue)
		}
	})
}

// Who gives up leaves no turn behind, whether it waited or was just given one.
func TestTurnsThatAreGivenUpAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(1)
		if err := turns.take(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, tenant := range []string{"a", "a", "b"} {
			go func() {
				if turns.take(ctx, tenant) == nil {
					turns.done()
				}
			}()
		}
		synctest.Wait()
		cancel()
		turns.done()
		synctest.Wait()
		if turns.free != 1 || len(turns.order) != 0 || len(turns.queue) != 0 {
			t.Errorf("%d free turns, %v and %v left, want 1 and none", turns.free, turns.order, turns.queue)
		}
	})
}
