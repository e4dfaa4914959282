package incident

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"leasehold.dev/model/canary"
)

// What can be expected of a prompt.
const (
	echo    = "echo"
	refuse  = "400 with numbers"
	notUp   = "not ready"
	foreign = "foreign markers"
)

// Row is one line of the table.
type Row struct {
	Guards   string        `json:"guards"`
	Length   int           `json:"length"`
	Expected string        `json:"expected"`
	Got      string        `json:"got"`
	Status   int           `json:"status"`
	Took     time.Duration `json:"took_ns"`
	Own      int           `json:"own"`
	Foreign  int           `json:"foreign"`
	Spoke    []string      `json:"spoke"` // guards and detectors
	Wrong    string        `json:"wrong,omitempty"`
}

// judge says what is wrong with a row; reserved is how many leases brokers gave out meanwhile.
func (r *Row) judge(v canary.Verdict, message string, reserved int) {
	r.Own, r.Foreign = v.Own, v.Leaked()
	switch {
	case r.Expected == echo && r.Status == 200 && v.Exact():
		r.Got = echo
	case r.Expected == echo:
		r.Got, r.Wrong = v.String(), "no exact echo"
	case r.Expected == refuse && r.Status == 400 && strings.Contains(message, fmt.Sprint(r.Length)):
		r.Got = refuse
		if reserved > 0 {
			r.Wrong = fmt.Sprintf("%d leases were reserved", reserved)
		}
	case r.Expected == refuse:
		r.Got, r.Wrong = v.String(), "not refused with the numbers"
	case r.Expected == foreign && r.Status == 200 && r.Foreign > 0:
		r.Got = foreign
	case r.Expected == foreign:
		r.Got, r.Wrong = v.String(), "no foreign marker: the incident was not played"
	}
}

func table(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "GUARDS\tLENGTH\tEXPECTED\tGOT\tSTATUS\tTIME\tOWN\tFOREIGN\tSPOKE\t")
	for _, r := range rows {
		mark := ""
		if r.Wrong != "" {
			mark = "NOT AS IT MUST BE: " + r.Wrong
		}
		spoke := strings.Join(r.Spoke, ", ")
		if spoke == "" {
			spoke = "-"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", r.Guards, r.Length, r.Expected, r.Got, r.Status,
			r.Took.Round(time.Millisecond), r.Own, r.Foreign, spoke, mark)
	}
	return w.Flush()
}
