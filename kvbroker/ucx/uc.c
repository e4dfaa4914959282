//go:build ucx

#include "uc.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum {
  AM_ID = 1,
  PROBE_ID = 2,
  SLAB = 64,  // nodes that are allocated together
  SLACK = 4096, // zeros after an address: UCX reads one without being told its length
  BATCH = 4,  // rounds of progress after the first event of a poll: more come in one call, and none waits long
};

// node is one operation, or one message that came, from its start to its event. Completed ones are linked: nothing is
// allocated when something ends, so nothing that ends can be lost.
typedef struct node {
  struct node *next;
  uc *u;
  int kept; // by an endpoint: it is not given back
  uc_event ev;
} node;

typedef struct endpoint {
  ucp_ep_h ep;
  uint32_t number;
  int used, failed;
  node broken, closed; // its two events, made with it
  uc *u;
} endpoint;

struct uc {
  ucp_context_h ctx;
  ucp_worker_h worker;
  ucp_mem_h memh;
  uint8_t *pool;
  uint64_t size;
  int efd;
  int64_t outstanding;
  node *head, **tail; // ended, not yet told
  node *free;
  void **slabs;
  size_t nslabs;
  endpoint **eps;
  uint32_t neps;
  ucp_ep_h self; // opened with the first probe
  node probe;    // its event, which is told once at a time
  enum { RESTING, ON_ITS_WAY, TOLD } probing;
};

static node *take(uc *u) {
  if (!u->free) {
    void **slabs = realloc(u->slabs, (u->nslabs + 1) * sizeof *slabs);
    if (!slabs) return NULL;
    u->slabs = slabs;
    node *n = calloc(SLAB, sizeof *n);
    if (!n) return NULL;
    u->slabs[u->nslabs++] = n;
    for (int i = 0; i < SLAB; i++) n[i].next = u->free, u->free = &n[i];
  }
  node *n = u->free;
  u->free = n->next;
  memset(n, 0, sizeof *n);
  n->u = u;
  return n;
}

static void give(node *n) { n->next = n->u->free, n->u->free = n; }

static void tell(node *n) {
  n->next = NULL;
  *n->u->tail = n;
  n->u->tail = &n->next;
}

static void end(node *n, ucs_status_t status) {
  n->ev.status = status;
  n->u->outstanding--;
  tell(n);
}

// came takes the offer of a message. Without memory it is refused: its sender hears of it, nobody here does.
static ucs_status_t came(void *arg, const void *header, size_t hl, void *data, size_t len, const ucp_am_recv_param_t *p) {
  node *n = take(arg);
  if (!n) return UCS_ERR_NO_MEMORY;
  int whole = hl == UC_HEADER, rndv = (p->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  if (hl) memcpy(n->ev.header, header, whole ? UC_HEADER : hl < UC_HEADER ? hl : UC_HEADER);
  n->ev.len = len;
  n->ev.kind = whole && rndv ? UC_MESSAGE : UC_REFUSED;
  n->ev.handle = n->ev.kind == UC_MESSAGE ? (uintptr_t)data : 0;
  tell(n);
  if (n->ev.kind == UC_MESSAGE) return UCS_INPROGRESS;
  return rndv ? UCS_ERR_REJECTED : UCS_OK; // only an offer can be answered
}

static void probed(uc *u, ucs_status_t status) {
  if (u->probing != ON_ITS_WAY) return;
  u->probing = TOLD;
  u->probe.ev.status = status;
  tell(&u->probe);
}

// came_back takes a probe. Anybody may send one: that it came is what it is asked for.
static ucs_status_t came_back(void *arg, const void *header, size_t hl, void *data, size_t len, const ucp_am_recv_param_t *p) {
  (void)header, (void)hl, (void)data, (void)len;
  probed(arg, UCS_OK);
  return p->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV ? UCS_ERR_REJECTED : UCS_OK;
}

static void probe_sent(void *req, ucs_status_t status, void *arg) {
  if (status != UCS_OK) probed(arg, status);
  ucp_request_free(req);
}

static void sent(void *req, ucs_status_t status, void *arg) {
  end(arg, status);
  ucp_request_free(req);
}

static void received(void *req, ucs_status_t status, size_t len, void *arg) {
  node *n = arg;
  if (status == UCS_OK && len != n->ev.len) status = UCS_ERR_MESSAGE_TRUNCATED; // of a failed one len says nothing
  end(n, status);
  ucp_request_free(req);
}

static void broken(void *arg, ucp_ep_h ep, ucs_status_t status) {
  (void)ep;
  endpoint *e = arg;
  if (e->failed) return;
  e->failed = 1;
  e->broken.ev.status = status;
  tell(&e->broken);
}

static void say(char *err, size_t errlen, const char *at, ucs_status_t s) {
  snprintf(err, errlen, "%s: %s", at, ucs_status_string(s));
}

static ucs_status_t configure(uc *u, const char *const *kv, const char **at) {
  ucp_config_t *cfg;
  *at = "ucp_config_read";
  ucs_status_t s = ucp_config_read(NULL, NULL, &cfg);
  if (s != UCS_OK) return s;
  for (; s == UCS_OK && kv[0] && kv[1]; kv += 2) {
    *at = kv[0];
    s = ucp_config_modify(cfg, kv[0], kv[1]);
  }
  if (s == UCS_OK) {
    // Neither tags, nor streams, nor RMA: with RMA any peer that connects could read and write this process's memory.
    ucp_params_t p = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                      .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
                      .mt_workers_shared = 0,
                      .name = "leasehold"};
    *at = "ucp_init";
    s = ucp_init(&p, cfg, &u->ctx);
  }
  ucp_config_release(cfg);
  return s;
}

static ucs_status_t work(uc *u, const char **at) {
  ucp_worker_params_t p = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS,
                           .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                           .events = UCP_WAKEUP_TX | UCP_WAKEUP_RX};
  *at = "ucp_worker_create";
  ucs_status_t s = ucp_worker_create(u->ctx, &p, &u->worker);
  if (s != UCS_OK) return s;
  ucp_am_handler_param_t h = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                            UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
                              .id = AM_ID,
                              .cb = came,
                              .arg = u,
                              .flags = UCP_AM_FLAG_WHOLE_MSG};
  *at = "ucp_worker_set_am_recv_handler";
  s = ucp_worker_set_am_recv_handler(u->worker, &h);
  if (s != UCS_OK) return s;
  h.id = PROBE_ID;
  h.cb = came_back;
  s = ucp_worker_set_am_recv_handler(u->worker, &h);
  if (s != UCS_OK) return s;
  *at = "ucp_worker_get_efd";
  s = ucp_worker_get_efd(u->worker, &u->efd);
  if (s != UCS_OK) return s;
  ucp_mem_map_params_t m = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
                            .address = u->pool,
                            .length = u->size};
  *at = "ucp_mem_map";
  return ucp_mem_map(u->ctx, &m, &u->memh);
}

static void destroy(uc *u) {
  if (u->memh) ucp_mem_unmap(u->ctx, u->memh);
  if (u->worker) ucp_worker_destroy(u->worker);
  if (u->ctx) ucp_cleanup(u->ctx);
  for (size_t i = 0; i < u->nslabs; i++) free(u->slabs[i]);
  for (uint32_t i = 0; i < u->neps; i++) free(u->eps[i]);
  free(u->slabs);
  free(u->eps);
  free(u);
}

uc *uc_new(const char *const *kv, void *pool, uint64_t size, char *err, size_t errlen) {
  uc *u = calloc(1, sizeof *u);
  if (!u) return say(err, errlen, "calloc", UCS_ERR_NO_MEMORY), NULL;
  u->tail = &u->head;
  u->probe = (node){.u = u, .kept = 1, .ev.kind = UC_PROBED};
  u->pool = pool;
  u->size = size;
  const char *at = "";
  ucs_status_t s = configure(u, kv, &at);
  if (s == UCS_OK) s = work(u, &at);
  if (s == UCS_OK) return u;
  say(err, errlen, at, s);
  destroy(u);
  return NULL;
}

static void left_self(void *req, ucs_status_t status, void *arg) {
  (void)status;
  ((uc *)arg)->outstanding--;
  ucp_request_free(req);
}

static void leave_self(uc *u) {
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                           .cb.send = left_self,
                           .user_data = u,
                           .flags = UCP_EP_CLOSE_FLAG_FORCE};
  if (UCS_PTR_IS_PTR(ucp_ep_close_nbx(u->self, &p))) u->outstanding++;
}

uint64_t uc_free(uc *u) {
  for (uint32_t i = 0; i < u->neps; i++) {
    if (u->eps[i]->used) uc_submit(u, &(uc_command){.kind = UC_CLOSE, .endpoint = i}, 1);
  }
  if (u->self) leave_self(u);
  for (int i = 0; i < 1000 && u->outstanding; i++) ucp_worker_progress(u->worker);
  uint64_t left = u->outstanding;
  for (node *n = u->head; n; n = n->next) {
    if (n->ev.kind == UC_MESSAGE) ucp_am_data_release(u->worker, (void *)(uintptr_t)n->ev.handle);
  }
  if (!left) destroy(u); // UCX aborts when a worker goes before its operations
  return left;
}

int64_t uc_address(uc *u, void *out, size_t max) {
  ucp_address_t *a;
  size_t n;
  ucs_status_t s = ucp_worker_get_address(u->worker, &a, &n);
  if (s != UCS_OK) return s;
  if (n <= max) memcpy(out, a, n);
  ucp_worker_release_address(u->worker, a);
  return n;
}

static endpoint *vacant(uc *u) {
  for (uint32_t i = 0; i < u->neps; i++) {
    if (!u->eps[i]->used) return u->eps[i];
  }
  endpoint **eps = realloc(u->eps, (u->neps + 1) * sizeof *eps);
  if (!eps) return NULL;
  u->eps = eps;
  endpoint *e = calloc(1, sizeof *e);
  if (!e) return NULL;
  e->number = u->neps;
  u->eps[u->neps++] = e;
  return e;
}

int64_t uc_open(uc *u, const void *address, size_t len) {
  uint8_t *copy = calloc(1, len + SLACK);
  if (!copy) return UCS_ERR_NO_MEMORY;
  memcpy(copy, address, len);
  endpoint *e = vacant(u);
  ucs_status_t s = UCS_ERR_NO_MEMORY;
  if (e) {
    uint32_t number = e->number;
    memset(e, 0, sizeof *e);
    e->number = number;
    e->u = e->broken.u = e->closed.u = u;
    e->broken.kept = e->closed.kept = 1;
    e->broken.ev = (uc_event){.kind = UC_FAILED, .tag = number};
    e->closed.ev = (uc_event){.kind = UC_CLOSED, .tag = number};
    ucp_ep_params_t p = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)copy,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = broken, .arg = e}};
    s = ucp_ep_create(u->worker, &p, &e->ep);
    e->used = s == UCS_OK;
  }
  free(copy);
  return s == UCS_OK ? (int64_t)e->number : s;
}

// posted notes what an operation's call has answered; its callback comes later, or never did.
static void posted(node *n, ucs_status_ptr_t r) {
  if (!UCS_PTR_IS_PTR(r)) end(n, UCS_PTR_STATUS(r));
}

static int inside(const uc *u, const uc_command *c) { return c->len > 0 && c->len <= u->size && c->offset <= u->size - c->len; }

static int there(const uc *u, const uc_command *c) { return c->endpoint < u->neps && u->eps[c->endpoint]->used; }

static void offer(uc *u, const uc_command *c, node *n) {
  memcpy(n->ev.header, c->header, UC_HEADER); // must live until the end
  if (!inside(u, c)) return end(n, UCS_ERR_OUT_OF_RANGE);
  if (!there(u, c)) return end(n, UCS_ERR_NOT_CONNECTED);
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                                           UCP_OP_ATTR_FIELD_MEMH,
                           .cb.send = sent,
                           .user_data = n,
                           .flags = UCP_AM_SEND_FLAG_RNDV,
                           .memh = u->memh};
  posted(n, ucp_am_send_nbx(u->eps[c->endpoint]->ep, AM_ID, n->ev.header, UC_HEADER, u->pool + c->offset, c->len, &p));
}

static void receive(uc *u, const uc_command *c, node *n) {
  void *data = (void *)(uintptr_t)c->handle;
  n->ev.len = c->len;
  if (!inside(u, c)) {
    ucp_am_data_release(u->worker, data);
    return end(n, UCS_ERR_OUT_OF_RANGE);
  }
  ucp_request_param_t p = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL | UCP_OP_ATTR_FIELD_MEMH,
      .cb.recv_am = received,
      .user_data = n,
      .memh = u->memh};
  posted(n, ucp_am_recv_data_nbx(u->worker, data, u->pool + c->offset, c->len, &p));
}

static void shut(uc *u, const uc_command *c) {
  if (!there(u, c)) return;
  endpoint *e = u->eps[c->endpoint];
  if (e->closed.ev.handle) return; // it is being closed
  e->closed.ev.handle = 1;
  e->failed = 1; // what breaks now is of no news
  u->outstanding++;
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                           .cb.send = sent,
                           .user_data = &e->closed,
                           .flags = UCP_EP_CLOSE_FLAG_FORCE};
  posted(&e->closed, ucp_ep_close_nbx(e->ep, &p));
}

static ucs_status_t meet_self(uc *u) {
  if (u->self) return UCS_OK;
  ucp_address_t *a;
  size_t n;
  ucs_status_t s = ucp_worker_get_address(u->worker, &a, &n);
  if (s != UCS_OK) return s;
  ucp_ep_params_t p = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                       .address = a,
                       .err_mode = UCP_ERR_HANDLING_MODE_PEER};
  s = ucp_ep_create(u->worker, &p, &u->self);
  if (s != UCS_OK) u->self = NULL;
  ucp_worker_release_address(u->worker, a);
  return s;
}

static void probe(uc *u) {
  if (u->probing != RESTING) return;
  u->probing = ON_ITS_WAY;
  ucs_status_t s = meet_self(u);
  if (s != UCS_OK) return probed(u, s);
  ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
                           .cb.send = probe_sent,
                           .user_data = u,
                           .flags = UCP_AM_SEND_FLAG_EAGER};
  ucs_status_ptr_t r = ucp_am_send_nbx(u->self, PROBE_ID, NULL, 0, NULL, 0, &p);
  if (UCS_PTR_IS_ERR(r)) probed(u, UCS_PTR_STATUS(r));
}

int uc_submit(uc *u, const uc_command *c, int n) {
  int done = 0;
  for (; done < n; done++, c++) {
    if (c->kind == UC_RELEASE) {
      ucp_am_data_release(u->worker, (void *)(uintptr_t)c->handle);
      continue;
    }
    if (c->kind == UC_CLOSE) {
      shut(u, c);
      continue;
    }
    if (c->kind == UC_PROBE) {
      probe(u);
      continue;
    }
    node *o = take(u);
    if (!o) break;
    o->ev.tag = c->tag;
    o->ev.kind = c->kind == UC_SEND ? UC_SENT : UC_RECEIVED;
    u->outstanding++;
    if (c->kind == UC_SEND) offer(u, c, o);
    else receive(u, c, o);
  }
  return done;
}

int uc_poll(uc *u, uc_event *out, int spins) {
  for (int i = 0; i < spins; i++) {
    unsigned worked = ucp_worker_progress(u->worker);
    if (u->head && (!worked || i >= BATCH)) break;
  }
  int n = 0;
  for (node *o; n < UC_MAX_EVENTS && (o = u->head); n++) {
    u->head = o->next;
    if (!u->head) u->tail = &u->head;
    out[n] = o->ev;
    if (o->kept) {
      if (o->ev.kind == UC_CLOSED) u->eps[o->ev.tag]->used = 0;
      if (o->ev.kind == UC_PROBED) u->probing = RESTING;
    } else {
      give(o);
    }
  }
  return n;
}

int uc_wait(uc *u, int ms) {
  if (u->head || ucp_worker_arm(u->worker) != UCS_OK) return 1; // busy, or broken: poll finds out
  struct pollfd p = {.fd = u->efd, .events = POLLIN};
  return poll(&p, 1, ms) != 0; // an interrupted one too: asking once more is cheap
}

void uc_signal(uc *u) { ucp_worker_signal(u->worker); }

const char *uc_status(int status) { return ucs_status_string(status); }
