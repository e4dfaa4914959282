// Package history answers, from the audit logs of a mesh, whose pages a response could have read.
//
// A [History] is fed every record of every log, each log's in order ([History.Add]). It follows each page of each broker
// instance from owner to owner: a grant, how it ended, and whether the page was cleared before it went to the next. A
// response is joined to the pages that it used by the admissions that its router signed for it. A replay is no response: its
// answer goes to nobody.
//
// It is a pure function of the records: no clock, no I/O. That the records are what the processes wrote is for
// package audit to say before.
package history
