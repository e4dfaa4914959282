// Package doctor says whether a mesh may take traffic: every promise fits what was derived, every worker is attached to the
// broker that answers, and every half has a partner that it agrees with. It is a pure function of what the processes said;
// the command `leasehold doctor` asks them.
package doctor
