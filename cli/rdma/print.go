package rdma

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes the report for a person.
func (r Report) Print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tON\tFOUND\tVERDICT\tWANT")
	for _, p := range r.Points {
		on := p.On
		if on == "" {
			on = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", p.Check, on, p.Found, p.Verdict, p.Want)
	}
	if r.Fit {
		fmt.Fprintln(w, "\nthis host is fit for the ucx mover over RDMA")
	} else {
		fmt.Fprintln(w, "\nthis host is not fit for the ucx mover over RDMA; pages move by grpc, and by shm inside of it")
	}
	return w.Flush()
}
