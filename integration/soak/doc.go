// Package soak keeps two meshes busy for minutes, one of the canary model and one of a real model, and holds each answer
// against the one that it must be.
//
// Sixteen tenants ask both, in streams and not, and often hang up; the pools hold only a few of them at once; twice a
// minute a worker of each mesh is killed and started again. All that may come of it: an answer that is right, the right
// beginning of one (who hung up, or lost its worker), a refusal for want of room, and "unavailable" close to a kill. No
// alarm may speak. At the end no page is in use, and the audit logs of all processes verify.
package soak
