package receipt

import (
	"encoding/json"
	"net/http"

	"leasehold.dev/protos/errs"
)

// ServeHTTP is for the admin port: GET lists the open reports, POST /{id}/close?by=NAME closes one.
func (d *Desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var out any
	switch r.Method {
	case http.MethodGet:
		out = map[string]any{"reports": d.All()}
	case http.MethodPost:
		closed, err := d.Close(r.PathValue("id"), r.URL.Query().Get("by"))
		if err != nil {
			code, ok := map[errs.Kind]int{errs.NotFound: http.StatusNotFound, errs.Invalid: http.StatusBadRequest}[errs.KindOf(err)]
			if !ok {
				code = http.StatusInternalServerError
			}
			http.Error(w, err.Error(), code)
			return
		}
		out = closed
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a client that is gone is no error of ours
}
