// Drives uc.c alone, for the address and thread sanitizers: see scripts/sanitize.sh. It says what went wrong and exits with 1.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucp/api/ucp.h>

#include "../uc.h"

enum { PAGE = 64 << 10, PAGES = 64, ROUNDS = 4 };

#define CHECK(x) ((x) ? (void)0 : (fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #x), exit(1)))

static const char *const settings[] = {"TLS", "posix", "RNDV_SCHEME", "get_zcopy", "KEEPALIVE_INTERVAL", "200ms", NULL};

typedef struct {
  uc *u;
  uint8_t *pool;
  uint8_t address[4096];
  int64_t alen;
  uc_event ev[UC_MAX_EVENTS];
} side;

static void start(side *s) {
  char err[256];
  s->pool = mmap(NULL, PAGE * PAGES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(s->pool != MAP_FAILED);
  s->u = uc_new(settings, s->pool, PAGE * PAGES, err, sizeof err);
  if (!s->u) fprintf(stderr, "%s\n", err);
  CHECK(s->u);
  s->alen = uc_address(s->u, s->address, sizeof s->address);
  CHECK(s->alen > 0);
  CHECK(uc_address(s->u, NULL, 0) == s->alen);
}

static void finish(side *s, uint64_t left) {
  CHECK(uc_free(s->u) == left);
  munmap(s->pool, PAGE * PAGES);
}

// next waits for an event of a kind and lets the other side work meanwhile.
static uc_event next(side *s, side *other, uint32_t kind) {
  for (int tries = 0; tries < 20000000; tries++) {
    int n = uc_poll(s->u, s->ev, 1);
    for (int i = 0; i < n; i++) {
      if (s->ev[i].kind == kind) {
        CHECK(i == n - 1); // tests wait for one thing at a time
        return s->ev[i];
      }
      fprintf(stderr, "event %u came, want %u\n", s->ev[i].kind, kind);
      exit(1);
    }
    if (other) CHECK(uc_poll(other->u, other->ev, 1) == 0);
  }
  fprintf(stderr, "no event %u\n", kind);
  exit(1);
}

static uc_command send_of(int64_t ep, uint32_t place) {
  uc_command c = {.kind = UC_SEND, .endpoint = ep, .tag = place, .offset = (uint64_t)place * PAGE, .len = PAGE};
  memcpy(c.header, &place, sizeof place);
  return c;
}

// --- two threads, each with its worker, and a third that signals both

static side S, R;
static atomic_int stop_signals;

static void *sender(void *arg) {
  int64_t ep = uc_open(S.u, R.address, R.alen);
  CHECK(ep >= 0);
  int flight = 0, done = 0, next_page = 0;
  while (done < PAGES * ROUNDS) {
    while (flight < 8 && next_page < PAGES * ROUNDS) {
      uc_command c = send_of(ep, next_page % PAGES);
      CHECK(uc_submit(S.u, &c, 1) == 1);
      flight++, next_page++;
    }
    int n = uc_poll(S.u, S.ev, 64);
    for (int i = 0; i < n; i++) {
      CHECK(S.ev[i].kind == UC_SENT && S.ev[i].status == 0);
      flight--, done++;
    }
    if (!n) uc_wait(S.u, 1000);
  }
  uc_submit(S.u, &(uc_command){.kind = UC_CLOSE, .endpoint = ep}, 1);
  for (int closed = 0; !closed;) {
    int n = uc_poll(S.u, S.ev, 64);
    for (int i = 0; i < n; i++) closed |= S.ev[i].kind == UC_CLOSED;
  }
  return arg;
}

static void *receiver(void *arg) {
  int done = 0;
  while (done < PAGES * ROUNDS) {
    int n = uc_poll(R.u, R.ev, 64);
    for (int i = 0; i < n; i++) {
      uc_event *e = &R.ev[i];
      if (e->kind == UC_RECEIVED) {
        CHECK(e->status == 0);
        done++;
        continue;
      }
      CHECK(e->kind == UC_MESSAGE && e->len == PAGE);
      uint32_t place;
      memcpy(&place, e->header, sizeof place);
      CHECK(place < PAGES);
      uc_command c = {.kind = UC_RECEIVE, .tag = place, .handle = e->handle, .offset = (uint64_t)place * PAGE, .len = PAGE};
      CHECK(uc_submit(R.u, &c, 1) == 1);
    }
    if (!n) uc_wait(R.u, 1000);
  }
  return arg;
}

static void *signaller(void *arg) {
  while (!atomic_load(&stop_signals)) {
    uc_signal(S.u);
    uc_signal(R.u);
  }
  return arg;
}

static void threads(void) {
  start(&S);
  start(&R);
  for (int i = 0; i < PAGE * PAGES; i++) S.pool[i] = (uint8_t)(i * 7 + i / PAGE);
  pthread_t s, r, k;
  CHECK(!pthread_create(&r, NULL, receiver, NULL) && !pthread_create(&s, NULL, sender, NULL) && !pthread_create(&k, NULL, signaller, NULL));
  pthread_join(s, NULL);
  pthread_join(r, NULL);
  atomic_store(&stop_signals, 1);
  pthread_join(k, NULL);
  CHECK(memcmp(S.pool, R.pool, PAGE * PAGES) == 0);
  finish(&S, 0);
  finish(&R, 0);
}

// --- what is refused ends too, once

static void refusals(void) {
  side a = {0}, b = {0};
  start(&a);
  start(&b);
  int64_t ep = uc_open(a.u, b.address, b.alen);
  CHECK(ep >= 0);
  uc_command nowhere = send_of(ep + 1, 0), outside = send_of(ep, PAGES), over = send_of(ep, 0), empty = send_of(ep, 0);
  over.offset = UINT64_MAX - 10;
  empty.len = 0;
  uc_command bad[] = {nowhere, outside, over, empty};
  for (int i = 0; i < 4; i++) {
    CHECK(uc_submit(a.u, &bad[i], 1) == 1);
    uc_event e = next(&a, NULL, UC_SENT);
    CHECK(e.status < 0);
  }
  uc_command good = send_of(ep, 3);
  CHECK(uc_submit(a.u, &good, 1) == 1);
  uc_event offer = next(&b, &a, UC_MESSAGE);
  uc_command into = {.kind = UC_RECEIVE, .tag = 9, .handle = offer.handle, .offset = PAGE * PAGES, .len = PAGE};
  CHECK(uc_submit(b.u, &into, 1) == 1); // outside: the message is given back
  CHECK(next(&b, NULL, UC_RECEIVED).status < 0);
  CHECK(next(&a, NULL, UC_SENT).status == 0);
  CHECK(uc_submit(a.u, &good, 1) == 1);
  offer = next(&b, &a, UC_MESSAGE);
  CHECK(uc_submit(b.u, &(uc_command){.kind = UC_RELEASE, .handle = offer.handle}, 1) == 1);
  CHECK(next(&a, NULL, UC_SENT).status == 0);
  CHECK(b.pool[3 * PAGE] == 0);
  uc_command twice[] = {{.kind = UC_CLOSE, .endpoint = ep}, {.kind = UC_CLOSE, .endpoint = ep}, {.kind = UC_CLOSE, .endpoint = 77}};
  CHECK(uc_submit(a.u, twice, 3) == 3);
  CHECK(next(&a, NULL, UC_CLOSED).tag == (uint64_t)ep);
  CHECK(uc_submit(a.u, &good, 1) == 1);
  CHECK(next(&a, NULL, UC_SENT).status < 0);
  CHECK(uc_open(a.u, b.address, b.alen) == ep); // its number is free again
  finish(&a, 0);
  finish(&b, 0);
}

// --- a message to oneself comes, by whatever way others come

static void probes(void) {
  side a = {0};
  start(&a);
  for (int i = 0; i < 3; i++) {
    CHECK(uc_submit(a.u, (uc_command[]){{.kind = UC_PROBE}, {.kind = UC_PROBE}}, 2) == 2); // the second adds nothing
    CHECK(next(&a, NULL, UC_PROBED).status == 0);
    CHECK(uc_poll(a.u, a.ev, 64) == 0);
  }
  CHECK(uc_submit(a.u, &(uc_command){.kind = UC_PROBE}, 1) == 1); // and one is on the way at the end
  finish(&a, 0);
}

// --- somebody who does not keep to the protocol

static void strangers(void) {
  side b = {0};
  start(&b);
  ucp_config_t *cfg;
  ucp_context_h ctx;
  ucp_worker_h w;
  ucp_ep_h ep;
  CHECK(ucp_config_read(NULL, NULL, &cfg) == UCS_OK && ucp_config_modify(cfg, "TLS", "posix") == UCS_OK);
  ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
  CHECK(ucp_init(&p, cfg, &ctx) == UCS_OK);
  ucp_config_release(cfg);
  ucp_worker_params_t wp = {0};
  CHECK(ucp_worker_create(ctx, &wp, &w) == UCS_OK);
  ucp_ep_params_t ep_p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                          .address = (const ucp_address_t *)b.address,
                          .err_mode = UCP_ERR_HANDLING_MODE_PEER};
  CHECK(ucp_ep_create(w, &ep_p, &ep) == UCS_OK);
  static char data[PAGE], header[UC_HEADER + 8];
  struct {
    size_t header, len;
    unsigned flags;
  } odd[] = {{UC_HEADER, 100, UCP_AM_SEND_FLAG_EAGER}, {UC_HEADER, PAGE, UCP_AM_SEND_FLAG_EAGER}, {0, PAGE, UCP_AM_SEND_FLAG_RNDV},
             {UC_HEADER - 1, PAGE, UCP_AM_SEND_FLAG_RNDV}, {UC_HEADER + 1, PAGE, UCP_AM_SEND_FLAG_RNDV}, {3, 0, UCP_AM_SEND_FLAG_EAGER}};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    ucp_request_param_t rp = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = odd[i].flags};
    ucs_status_ptr_t r = ucp_am_send_nbx(ep, 1, header, odd[i].header, data, odd[i].len, &rp);
    int refused = 0;
    for (int tries = 0; tries < 20000000 && (!refused || UCS_PTR_IS_PTR(r)); tries++) {
      ucp_worker_progress(w);
      int n = uc_poll(b.u, b.ev, 1);
      for (int j = 0; j < n; j++) CHECK(b.ev[j].kind == UC_REFUSED && b.ev[j].handle == 0), refused++;
      if (UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) != UCS_INPROGRESS) ucp_request_free(r), r = NULL;
    }
    CHECK(refused == 1 && !UCS_PTR_IS_PTR(r));
  }
  ucp_request_param_t cp = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
  ucs_status_ptr_t r = ucp_ep_close_nbx(ep, &cp);
  for (int i = 0; i < 100000 && UCS_PTR_IS_PTR(r) && ucp_request_check_status(r) == UCS_INPROGRESS; i++) ucp_worker_progress(w);
  if (UCS_PTR_IS_PTR(r)) ucp_request_free(r);
  ucp_worker_destroy(w);
  ucp_cleanup(ctx);
  finish(&b, 0);
}

static void failures(void) {
  char err[64];
  const char *const bad[] = {"TLS", "none-of-these", NULL}, *const unknown[] = {"RNDV_SCHEME", "no such", NULL};
  static uint8_t pool[4096];
  CHECK(!uc_new(bad, pool, sizeof pool, err, sizeof err) && err[0]);
  CHECK(!uc_new(unknown, pool, sizeof pool, err, sizeof err) && err[0]);
  CHECK(uc_status(0) && uc_status(-16));
}

int main(int argc, char **argv) {
  setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);
  threads();
  if (argc > 1 && !strcmp(argv[1], "threads")) return 0;
  refusals();
  probes();
  strangers();
  failures();
  return 0;
}
