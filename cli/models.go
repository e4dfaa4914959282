package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
)

type modelsCommand struct {
	target
}

// Run prints a line a model. The limit is what every half can hold, not what was promised.
func (c *modelsCommand) Run(ctx context.Context, s streams) error {
	client, _, err := c.client()
	if err != nil {
		return err
	}
	page, err := client.Models.List(ctx)
	if err != nil {
		return explain(err)
	}
	w := tabwriter.NewWriter(s.out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "MODEL\tLIMIT")
	for _, m := range page.Data {
		var more struct {
			Limit int `json:"context_length"`
		}
		if err := json.Unmarshal([]byte(m.RawJSON()), &more); err != nil {
			return fmt.Errorf("models: %w", err)
		}
		fmt.Fprintf(w, "%s\t%d tokens\n", m.ID, more.Limit)
	}
	return w.Flush()
}
