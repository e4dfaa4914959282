// One UCX worker for pages of one registered pool, as flat calls: numbers in, codes out. UCX's callbacks stay in C.
//
// Every call but uc_signal belongs to one thread. No call keeps a pointer of its caller, but the pool's memory, and none
// prints, aborts or throws. A negative return value is a ucs_status_t.
//
// Every operation ends in exactly one event: also one that UCX refuses, or that is over when it is posted. Memory of a
// receive is written until its event and never after; memory of a send is read until its event. Closing an endpoint
// ends neither: they have events of their own.
#ifndef LEASEHOLD_UC_H
#define LEASEHOLD_UC_H

#include <stddef.h>
#include <stdint.h>

enum {
  UC_HEADER = 32,     // bytes of a message's header
  UC_MAX_EVENTS = 64, // that one uc_poll returns
};

// Events.
enum {
  UC_MESSAGE = 1, // somebody offers len bytes: handle is to be given to UC_RECEIVE or UC_RELEASE, once
  UC_REFUSED,     // a message of another shape came and was dropped: eager, or with another header
  UC_SENT,        // a UC_SEND has ended; it says nothing about the other side
  UC_RECEIVED,    // a UC_RECEIVE has ended
  UC_FAILED,      // the endpoint in tag is broken: close it
  UC_CLOSED,      // the endpoint in tag is closed and may be opened again
  UC_PROBED,      // the message of a UC_PROBE has come, or it could not be sent: then with why
};

// Commands.
enum {
  UC_SEND = 1, // [offset, offset+len) of the pool to endpoint
  UC_RECEIVE,  // the message of handle to [offset, offset+len) of the pool; len is the message's
  UC_RELEASE,  // the message of handle is not wanted: its sender's operation ends well. No event follows
  UC_CLOSE,    // endpoint, by force. No event but UC_CLOSED follows
  UC_PROBE,    // a message to oneself, over what others come by. Its event is the message's; one more before that was polled adds none
};

typedef struct {
  uint32_t kind;
  int32_t status; // ucs_status_t; 0: well
  uint64_t tag;   // of the command, or the endpoint
  uint64_t handle;
  uint64_t len;
  uint8_t header[UC_HEADER];
} uc_event;

typedef struct {
  uint32_t kind;
  uint32_t endpoint;
  uint64_t tag;
  uint64_t handle;
  uint64_t offset;
  uint64_t len;
  uint8_t header[UC_HEADER];
} uc_command;

typedef struct uc uc;

// uc_new makes a context with active messages and nothing else, and registers [pool, pool+size). kv is pairs of a setting
// and its value, ended by NULL. On failure it returns NULL and says in err what failed.
uc *uc_new(const char *const *kv, void *pool, uint64_t size, char *err, size_t errlen);

// uc_free closes every endpoint and ends the worker. When operations have not ended even then, it returns how many, and
// the worker stays: nobody drives it any more, and only the end of the process ends them.
uint64_t uc_free(uc *);

// uc_address copies the worker's address to out and returns its length; more than max: nothing was copied.
int64_t uc_address(uc *, void *out, size_t max);

// uc_open makes an endpoint to an address and returns its number.
int64_t uc_open(uc *, const void *address, size_t len);

// uc_submit carries commands out in order and returns how many: fewer than n when there is no memory, the rest to be tried
// again. Those that UCX refuses have an event with why.
int uc_submit(uc *, const uc_command *, int n);

// uc_poll lets UCX work until there are events, at most spins times, and returns their number, at most UC_MAX_EVENTS.
int uc_poll(uc *, uc_event *out, int spins);

// uc_wait sleeps until there may be work, uc_signal was called, or ms have passed (-1: never). 1: work; 0: none.
int uc_wait(uc *, int ms);

// uc_signal wakes uc_wait, now or when it is next called. Any thread may call it, until uc_free.
void uc_signal(uc *);

// uc_status is a status in words, static.
const char *uc_status(int status);

#endif
