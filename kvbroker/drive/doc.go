// Package drive is the mover process: it attaches to the broker of its host, as package attach says, opens a ucx.Mover over
// the broker's pool, and does what the broker says on one stream (leasehold.mover.v1).
//
// It is a process of its own so that a fault of the libraries in it ends it and nothing else, and so that the kernel can say
// when it has ended: what it may have been reading or writing until then is kept from everybody by the broker. It decides
// nothing: it knows neither leases nor tenants, only places, pages and addresses. When nothing reaches it any more it ends;
// whoever started it starts another.
package drive
