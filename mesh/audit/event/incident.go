package event

// KindIncident is what a detector of any service writes.
const KindIncident = "incident"

// Incident says that a detector found a property of the boundary broken (package boundary). What else a service knows of it
// is in a record of its own kind beside this one.
type Incident struct {
	Property string `json:"property"`
	Detector string `json:"detector"`
	About    string `json:"about"` // what was looked at, by kind and name
}

// Kind of the record.
func (Incident) Kind() string { return KindIncident }
