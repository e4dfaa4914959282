// Package guards turns guards off, one by one and all but one, in front of the attacks that each exists for, and looks at
// what a tenant gets: his own markers, another tenant's, or an explicit error.
//
// Every attack runs against real processes of the faults build over the canary model, between two pools, after another
// tenant has filled decode's pool with his markers. For each guard there are three runs and a common fourth: all guards on;
// this one off; only this one on; all off. With all off the other tenant's markers must come out, or the attack proves
// nothing; where that cannot be, the table says why.
package guards
