//go:build ucx

package pair

import "syscall"

const (
	stop = syscall.SIGSTOP
	goOn = syscall.SIGCONT
)
