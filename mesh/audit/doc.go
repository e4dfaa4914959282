// Package audit is a process's own log of what it did with other people's data: append-only, hash-chained, signed.
//
// A [Log] is a directory that one process writes:
//
//	audit-00000000000000000001.jsonl   records, one a line; the name is the first record's number
//	heads.jsonl                        signed heads, one a line
//	key.pem, key.pub.pem               the Ed25519 key that signs heads, made at the first start; key.pem is 0600
//	lock                               held by the process that writes
//
// # Records
//
// A line is {"seq","time","service","instance","kind","fields","prev","hash"}, as encoding/json writes it, without spaces.
// hash is SHA-256 over "leasehold-audit-v1\n" and the line's bytes with the member hash left out; prev is the hash of
// the record before, zeros for the first. The chain goes on across files and restarts. A line in any other spelling of
// the same values is garbled, so a record has one form and its hash one meaning.
//
// # Heads
//
// Every minute with new records, after each removal of a file, and at the end, the newest record's number and hash are
// signed over "leasehold-audit-head-v1\n" and the head's JSON without the member sig. The log is on disk before its
// head is. [Log.Head] is the last one; who keeps it elsewhere, such as in a receipt, can show later that the log was cut
// or rewritten below it, even by somebody who can write the whole directory. A cut above the last signed head that
// anybody kept cannot be told from a crash.
//
// # What cannot get lost in silence
//
//   - A crash in mid-write leaves a torn last line. The next start takes it out and keeps its bytes in a record.
//   - Rotation removes a file only when told how many to keep, and after a signed record that names what is gone.
//   - A log that cannot be written makes [Log.Healthy] fail. Records wait in memory meanwhile; when there is no room
//     left, how many were lost becomes a record.
//   - A directory whose records do not reach its own last head is not opened.
//
// No text of a tenant's goes into a record: ids, counts, digests, kinds and reasons only. package event has what the
// services write.
package audit
