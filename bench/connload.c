/* Load from very many AMQP 0-9-1 connections out of one thread: each publishes to one of Q queues at a
 * rate of its own, and Q more consume. Reads phases from standard input, one a line, and prints one
 * JSON line for each:
 *
 *   connect N     open connections until there are N, each with a channel in confirm mode
 *   idle S        do nothing for S seconds but answer and send heartbeats
 *   run R S       publish R messages a second on each connection for S seconds
 *   close         close all connections' sockets
 *
 * A message's latencies count from the time at which it was due, so that one that could not be sent
 * in time is not forgotten.
 * cc -O2 -o connload connload.c -lm */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "latency.h"

#define RING 64       /* unconfirmed messages of a connection; beyond it none is sent */
#define IN_MAX 262144 /* bytes read at a time */
#define OPENING 100 /* connections that are being opened at the same time */
#define FRAME 131072
#define PREFETCH 1000
#define TURN_NS 100000000LL
#define HEARTBEAT 60 /* seconds; sent after half of them */

enum { CLOSED, STARTING, TUNING, OPENING_CHANNEL, SELECTING, READY };

typedef struct {
  int fd, state, queue, is_consumer, have, unsettled;
  uint64_t sent, acked, tag;
  long long due[RING], spoke;
  unsigned char* part; /* a frame of which some has come */
} Connection;

static int ports[16], nports, Q = 32, size = 100;
static const char* prefix = "many";
static Connection* all;
static int count, ready, epoll, asked;
static long sent, confirmed, received, skipped, errors, nacked;
static unsigned char in[IN_MAX + FRAME + 8], out[4096 + 65536];

static void fail(const char* what) {
  if (errors++ < 10)
    fprintf(stderr, "connload: %s: %s\n", what, strerror(errno));
}
static unsigned char* put(unsigned char* at, uint64_t value, int bytes) {
  while (bytes--)
    *at++ = value >> (8 * bytes);
  return at;
}
static uint64_t get(const unsigned char* at, int bytes) {
  uint64_t value = 0;
  while (bytes--)
    value = value << 8 | *at++;
  return value;
}
static unsigned char* text(unsigned char* at, const char* value, int length_bytes) {
  size_t length = strlen(value);
  at = put(at, length, length_bytes);
  memcpy(at, value, length);
  return at + length;
}
/* Begin a method frame of `channel`; `finish` sets its length. */
static unsigned char* method(unsigned char* frame, int channel, int class_id, int id) {
  unsigned char* at = put(put(frame, 1, 1), channel, 2);
  return put(put(at + 4, class_id, 2), id, 2);
}
static unsigned char* finish(unsigned char* frame, unsigned char* at) {
  put(frame + 3, at - frame - 7, 4);
  *at++ = 0xCE;
  return at;
}
static void drop(Connection* c) {
  if (c->state == READY)
    ready--;
  if (c->fd >= 0)
    close(c->fd);
  c->fd = -1;
  c->state = CLOSED;
}
static int deliver(Connection* c, unsigned char* end) {
  ssize_t length = end - out;
  c->spoke = now_ns();
  if (send(c->fd, out, length, MSG_NOSIGNAL) == length)
    return 1;
  fail("send"); /* a socket buffer holds far more than a connection has unconfirmed */
  drop(c);
  return 0;
}
static void opened(Connection* c) {
  c->state = READY;
  ready++;
}
static void consume(Connection* c) {
  char name[64];
  snprintf(name, sizeof name, "%s-%d", prefix, c->queue);
  unsigned char *f = out, *at = method(f, 1, 60, 10);
  f = at = finish(f, put(put(put(at, 0, 4), PREFETCH, 2), 0, 1));
  at = text(put(method(f, 1, 60, 20), 0, 2), name, 1);
  at = finish(f, put(put(text(at, "", 1), 0, 1), 0, 4));
  deliver(c, at);
}
static void declare(Connection* c) {
  char name[64];
  snprintf(name, sizeof name, "%s-%d", prefix, c->queue);
  unsigned char* at = text(put(method(out, 1, 50, 10), 0, 2), name, 1);
  at = put(at, 2, 1); /* durable */
  unsigned char* table = at;
  at = text(at + 4, "x-queue-type", 1);
  *at++ = 'S';
  at = text(at, "quorum", 4);
  put(table, at - table - 4, 4);
  deliver(c, finish(out, at));
}
/* Go on with the opening of a connection after a method of the server. */
static void proceed(Connection* c, int class_id, int id, const unsigned char* args) {
  unsigned char *f = out, *at;
  switch (class_id << 8 | id) {
    case 10 << 8 | 10: /* connection.start */
      at = text(put(method(f, 0, 10, 11), 0, 4), "PLAIN", 1);
      at = put(at, 12, 4);
      memcpy(at, "\0guest\0guest", 12);
      deliver(c, finish(f, text(at + 12, "en_US", 1)));
      return;
    case 10 << 8 | 30: /* connection.tune */
      at = put(method(f, 0, 10, 31), get(args, 2), 2);
      f = finish(f, put(put(at, FRAME, 4), HEARTBEAT, 2));
      at = text(method(f, 0, 10, 40), "/", 1);
      deliver(c, finish(f, put(at, 0, 2)));
      return;
    case 10 << 8 | 41: /* connection.open-ok */
      deliver(c, finish(f, put(method(f, 1, 20, 10), 0, 1)));
      return;
    case 20 << 8 | 11: /* channel.open-ok */
      if (c->is_consumer)
        declare(c);
      else
        deliver(c, finish(f, put(method(f, 1, 85, 10), 0, 1)));
      return;
    case 50 << 8 | 11: /* queue.declare-ok */
      consume(c);
      return;
    case 60 << 8 | 21: /* basic.consume-ok */
    case 85 << 8 | 11: /* confirm.select-ok */
      opened(c);
      return;
    case 60 << 8 | 11: /* basic.qos-ok */
      return;
    default:
      fprintf(stderr, "connload: method %d.%d: %.*s\n", class_id, id, 80, (const char*)args + 3);
      errors++;
      drop(c);
  }
}
static void settled(Connection* c, const unsigned char* args, int is_nack) {
  uint64_t tag = get(args, 8), from = args[8] & 1 ? c->acked + 1 : tag;
  long long now = now_ns();
  for (uint64_t each = from; each <= tag; each++) {
    record(1, now - c->due[each % RING]);
    is_nack ? nacked++ : confirmed++;
  }
  if (tag > c->acked)
    c->acked = tag;
}
static void came(Connection* c, const unsigned char* body) {
  record(0, now_ns() - (long long)get(body, 8));
  received++;
  c->tag++;
  if (++c->unsettled < PREFETCH / 10)
    return;
  c->unsettled = 0;
  deliver(c, finish(out, put(put(method(out, 1, 60, 80), c->tag, 8), 1, 1)));
}
static void frame(Connection* c, const unsigned char* f) {
  int class_id, id;
  if (f[0] == 3 && c->is_consumer)
    came(c, f + 7);
  if (f[0] != 1)
    return;
  class_id = get(f + 7, 2), id = get(f + 9, 2);
  if (class_id == 60 && (id == 80 || id == 120))
    settled(c, f + 11, id == 120);
  else if (class_id != 60 || id != 60)
    proceed(c, class_id, id, f + 11);
}
static void readable(Connection* c) {
  int have = c->have;
  if (have)
    memcpy(in, c->part, have);
  ssize_t length = recv(c->fd, in + have, IN_MAX, 0);
  if (length <= 0) {
    if (length < 0 && errno == EAGAIN)
      return;
    fail(length ? "recv" : "closed by the server");
    drop(c);
    return;
  }
  unsigned char *at = in, *end = in + have + length;
  while (c->state != CLOSED && end - at >= 8) {
    long whole = get(at + 3, 4) + 8;
    if (end - at < whole)
      break;
    frame(c, at);
    at += whole;
  }
  if (c->state == CLOSED)
    return;
  c->have = end - at;
  if (c->have) {
    c->part = realloc(c->part, c->have);
    memcpy(c->part, at, c->have);
  }
}
static void connect_one(int number) {
  Connection* c = &all[number];
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(ports[number % nports])};
  struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
  int on = 1;
  memset(c, 0, sizeof *c);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  c->is_consumer = number < Q;
  c->queue = number % Q;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  c->state = STARTING;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (c->fd < 0 || (connect(c->fd, (struct sockaddr*)&to, sizeof to) && errno != EINPROGRESS)) {
    fail("connect");
    drop(c);
    return;
  }
  event.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT;
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}
static void turn(long long wait_ns) {
  struct epoll_event events[1024];
  struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
  int n = epoll_pwait2(epoll, events, 1024, &wait, NULL);
  for (int i = 0; i < n; i++) {
    Connection* c = &all[events[i].data.u32];
    if (c->state == STARTING && events[i].events & EPOLLOUT) {
      struct epoll_event event = {.events = EPOLLIN, .data.u32 = events[i].data.u32};
      memcpy(out, "AMQP\0\0\x09\x01", 8);
      c->state = TUNING;
      if (deliver(c, out + 8))
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
    } else if (c->state != CLOSED)
      readable(c);
  }
}
static void heartbeats(long long now) {
  static long long looked;
  if (now - looked < 1000000000)
    return;
  looked = now;
  for (int i = 0; i < count; i++) {
    Connection* c = &all[i];
    if (c->state == READY && now - c->spoke > HEARTBEAT * 500000000LL)
      deliver(c, finish(out, put(put(out, 8, 1), 0, 6)));
  }
}
static void publish(Connection* c, long long due) {
  char name[64];
  if (c->state != READY || c->sent - c->acked >= RING) {
    skipped++;
    return;
  }
  snprintf(name, sizeof name, "%s-%d", prefix, c->queue);
  unsigned char *f = out, *at = put(method(f, 1, 60, 40), 0, 2);
  f = finish(f, put(text(text(at, "", 1), name, 1), 0, 1));
  at = put(put(put(f, 2, 1), 1, 2), 0, 4);
  at = put(put(put(put(put(at, 60, 2), 0, 2), size, 8), 0x1000, 2), 2, 1);
  f = finish(f, at);
  at = put(put(put(f, 3, 1), 1, 2), 0, 4);
  memset(at, 'x', size);
  put(at, due, 8);
  c->due[++c->sent % RING] = due;
  sent++;
  deliver(c, finish(f, at + size));
}
static void connect_all(int number) {
  long long begun = now_ns(), end = begun + 120000000000LL;
  int from = count;
  asked = number + Q;
  all = realloc(all, asked * sizeof *all);
  while (ready < asked && now_ns() < end && errors < 1000) {
    while (count < asked && count - ready < OPENING && (count != Q || ready == Q))
      connect_one(count++);
    turn(TURN_NS);
  }
  double seconds = (now_ns() - begun) / 1e9;
  printf("{\"connections\": %d, \"seconds\": %.3f, \"per_second\": %.0f, \"errors\": %ld}\n", ready,
         seconds, (ready - from) / seconds, errors);
}
static void rest(double seconds) {
  long long end = now_ns() + seconds * 1e9;
  while (now_ns() < end) {
    turn(TURN_NS);
    heartbeats(now_ns());
  }
}
static void run(double rate, double seconds) {
  int publishers = count - Q;
  long long begun = now_ns(), now, end = begun + seconds * 1e9, step = 1e9 / (rate * publishers);
  long long due = begun;
  memset(hist, 0, sizeof hist);
  sent = confirmed = received = skipped = nacked = 0;
  atomic_store(&measuring, 1);
  while ((now = now_ns()) < end) {
    static unsigned next;
    for (int burst = 0; due <= now && burst < 256; burst++, due += step)
      publish(&all[Q + next++ % publishers], due);
    turn(due <= now ? 0 : due - now < TURN_NS ? due - now : TURN_NS);
    heartbeats(now);
  }
  long in_time = confirmed, got = received;
  while (confirmed + nacked < sent && now_ns() < end + 10000000000LL)
    turn(TURN_NS); /* so that the latencies of the last are counted as well */
  atomic_store(&measuring, 0);
  printf("{\"offered\": %.0f, \"sent\": %.0f, \"confirmed\": %.0f, \"received\": %.0f, \"skipped\": %ld, "
         "\"nacked\": %ld, \"errors\": %ld, \"open\": %d, \"confirm_p50_ms\": %.3f, "
         "\"confirm_p99_ms\": %.3f, \"e2e_p50_ms\": %.3f, \"e2e_p99_ms\": %.3f}\n",
         rate * publishers, sent / seconds, in_time / seconds, got / seconds, skipped, nacked, errors,
         ready, percentile(1, 0.5), percentile(1, 0.99), percentile(0, 0.5), percentile(0, 0.99));
}
int main(int argc, char** argv) {
  char line[256];
  double a, b;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--ports"))
      for (char* p = strtok(argv[i + 1], ","); p && nports < 16; p = strtok(NULL, ","))
        ports[nports++] = atoi(p);
    else if (!strcmp(argv[i], "--queues"))
      Q = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--size"))
      size = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--prefix"))
      prefix = argv[i + 1];
    else
      return fprintf(stderr, "connload: unknown option %s\n", argv[i]), 2;
  }
  if (!nports || size < 8 || size > 60000 || Q < 1)
    return fprintf(stderr, "connload: --ports p,... [--queues Q] [--size 8..60000] [--prefix s]\n"), 2;
  epoll = epoll_create1(0);
  while (fgets(line, sizeof line, stdin)) {
    if (sscanf(line, "connect %lf", &a) == 1)
      connect_all(a);
    else if (sscanf(line, "idle %lf", &a) == 1)
      rest(a), printf("{\"open\": %d, \"errors\": %ld}\n", ready, errors);
    else if (sscanf(line, "run %lf %lf", &a, &b) == 2)
      run(a, b);
    else
      return fprintf(stderr, "connload: unknown phase %s", line), 2;
    fflush(stdout);
  }
  return 0;
}
