/* Overloads an AMQP 0-9-1 broker: groups of connections that publish, consume or do both, driven by one
 * thread over epoll. Unlike amqpload it never blocks in a send, so that a connection whose socket the
 * broker does not read still takes its deliveries. Prints one JSON object.
 *
 *   overload --ports 5672,5673 --warmup 3 --seconds 8 --drain 3
 *            --group name=p,connections=200,publish=q,queues=50,window=100,size=100
 *            --group name=c,connections=50,consume=q,queues=50,prefetch=100,ack=50
 *
 * Keys of a group, separated by commas:
 *   name      in the output            connections   how many
 *   publish   prefix of its queues     consume       likewise
 *   queues    how many of them         window        unconfirmed publishes, 0 for no confirms
 *   rate      publishes/s of all its connections, 0 for as many as go
 *   size      bytes of a body         prefetch, ack   of consumers: ack every so many
 *   delay_us  a consumer's work for each message, one after the other
 *   limit     publishes of all its connections, 0 for no end
 * cc -O2 -o overload overload.c -lm */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 8, SECONDS = 600, BUCKETS = 4000, IN_BYTES = 1 << 18, OUT_BYTES = 32768 };
enum { SOCKET_BYTES = 65536, HEARTBEAT_S = 60, PUBLISHING = 1, CONSUMING = 2 };
#define METHOD(class, method) ((uint32_t)(class) << 16 | (method))

typedef struct {
  char name[32], publish[32], consume[32];
  int count, queues, size, prefetch, ack;
  long window, delay_us, limit;
  double rate;
  long sent, confirmed, nacked, received, disconnected, refused, blocked, flows;
  long each[SECONDS][3];               /* sent, confirmed, received in each second */
  long hist[2][BUCKETS], longest[2];   /* end to end, confirm: 100 buckets for each power of two */
} group_t;

typedef struct {
  int fd, id, stopped, writing;        /* stopped by channel.flow; writing: EPOLLOUT is on */
  group_t* group;
  uint8_t *in, *out, *message;
  size_t in_used, out_used, out_done, out_size, message_size, stamp_at;
  long long* sent_at;                  /* ring by delivery tag, 0 once confirmed */
  uint64_t next_tag, low_tag, outstanding;
  long quota, published;
  long long started, last_write;
  uint64_t got_tag, ack_tag, body_left; /* the delivery that is being read; the last acknowledged */
  int body_first;
  uint64_t* work;                      /* delivery tags that wait for the slow consumer */
  long work_head, work_count;
  long long busy_until;
} connection_t;

static int ports[16], port_count;
static int warmup = 2, seconds = 8, drain = 3;
static group_t groups[GROUPS];
static int group_count, poller;
static connection_t* connections;
static int connection_count;
static int publishing = 0, measuring = 0;
static const char* queue_type = "quorum";

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void record(group_t* g, int kind, long long ns) {
  if (!measuring)
    return;
  double us = ns / 1000.0;
  int bucket = us > 1 ? (int)(log2(us) * 100) : 0;
  g->hist[kind][bucket < BUCKETS ? bucket : BUCKETS - 1]++;
  if (ns > g->longest[kind])
    g->longest[kind] = ns;
}

static double percentile_ms(group_t* g, int kind, double share) {
  long total = 0, seen = 0;
  for (int i = 0; i < BUCKETS; i++)
    total += g->hist[kind][i];
  for (int i = 0; i < BUCKETS && total; i++) {
    seen += g->hist[kind][i];
    if (seen >= total * share)
      return exp2((i + 1) / 100.0) / 1000.0;
  }
  return 0;
}

/* ---- bytes ------------------------------------------------------------------------------ */

static uint8_t* put(uint8_t* p, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; i--)
    *p++ = value >> (8 * i);
  return p;
}
static uint64_t get(const uint8_t* p, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++)
    value = value << 8 | p[i];
  return value;
}
static uint8_t* put_short(uint8_t* p, const char* text) {
  size_t n = strlen(text);
  *p++ = n;
  memcpy(p, text, n);
  return p + n;
}
static uint8_t* put_long(uint8_t* p, const void* bytes, size_t n) {
  p = put(p, n, 4);
  memcpy(p, bytes, n);
  return p + n;
}
static uint8_t* begin(uint8_t* p, int type, int channel, uint32_t method) {
  p = put(put(put(p, type, 1), channel, 2), 0, 4);
  return type == 1 ? put(p, method, 4) : p;
}
/* Ends the frame that begins at `frame`; returns what follows it. */
static uint8_t* end(uint8_t* frame, uint8_t* p) {
  put(frame + 3, p - frame - 7, 4);
  *p++ = 0xCE;
  return p;
}

/* ---- opening, one step after the other --------------------------------------------------- */

static int send_all(int fd, const uint8_t* p, size_t n) {
  while (n) {
    ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
    if (done <= 0)
      return -1;
    p += done;
    n -= done;
  }
  return 0;
}
static int receive_all(int fd, uint8_t* p, size_t n) {
  while (n) {
    ssize_t done = recv(fd, p, n, 0);
    if (done <= 0)
      return -1;
    p += done;
    n -= done;
  }
  return 0;
}
/* Sends a frame, if any, and waits for a method; returns -1 for any other one. */
static int ask(int fd, uint8_t* frame, uint8_t* p, uint32_t answer, uint8_t* payload) {
  uint8_t head[7];
  if (p && send_all(fd, frame, end(frame, p) - frame))
    return -1;
  for (;;) {
    if (receive_all(fd, head, 7))
      return -1;
    size_t n = get(head + 3, 4);
    if (n >= IN_BYTES || receive_all(fd, payload, n + 1))
      return -1;
    if (head[0] == 8 || (head[0] == 1 && get(payload, 4) >> 16 == 10 && (get(payload, 4) & 0xffff) >= 60))
      continue; /* heartbeats, connection.blocked */
    if (head[0] == 1 && get(payload, 4) == answer)
      return 0;
    if (head[0] == 1)
      fprintf(stderr, "wanted %x, got %lx\n", answer, (unsigned long)get(payload, 4));
    return -1;
  }
}

static int open_socket(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, bytes = SOCKET_BYTES;
  struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port)};
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  struct timeval patience = {30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes); /* so that little waits unseen */
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, (struct sockaddr*)&where, sizeof where)) {
    close(fd);
    return -1;
  }
  return fd;
}

static uint8_t* put_yes(uint8_t* p, const char* name) {
  p = put_short(p, name);
  *p++ = 't';
  *p++ = 1;
  return p;
}

static int log_in(int port) {
  static uint8_t frame[1024], answer[IN_BYTES + 1], capabilities[256], properties[512];
  int fd = open_socket(port);
  if (fd < 0)
    return -1;
  uint8_t* p = put_yes(capabilities, "publisher_confirms");
  p = put_yes(put_yes(put_yes(p, "basic.nack"), "consumer_cancel_notify"), "connection.blocked");
  uint8_t* q = put_short(properties, "capabilities");
  *q++ = 'F';
  q = put_long(q, capabilities, p - capabilities);
  if (send_all(fd, (const uint8_t*)"AMQP\0\0\x09\x01", 8) ||
      ask(fd, frame, NULL, METHOD(10, 10), answer))
    goto failed;
  p = begin(frame, 1, 0, METHOD(10, 11));
  p = put_long(p, properties, q - properties);
  p = put_short(put_long(put_short(p, "PLAIN"), "\0guest\0guest", 12), "en_US");
  if (ask(fd, frame, p, METHOD(10, 30), answer))
    goto failed;
  uint8_t* tune = answer + 4;
  p = put(begin(frame, 1, 0, METHOD(10, 31)), get(tune, 2), 2);
  p = put(put(p, get(tune + 2, 4), 4), HEARTBEAT_S, 2);
  if (send_all(fd, frame, end(frame, p) - frame))
    goto failed;
  p = put_short(begin(frame, 1, 0, METHOD(10, 40)), "/");
  *p++ = 0;
  *p++ = 0;
  if (ask(fd, frame, p, METHOD(10, 41), answer))
    goto failed;
  return fd;
failed:
  close(fd);
  return -1;
}

static int open_channel(int fd, int channel) {
  static uint8_t frame[64], answer[IN_BYTES + 1];
  return ask(fd, frame, put_short(begin(frame, 1, channel, METHOD(20, 10)), ""), METHOD(20, 11), answer);
}

/* Declares (or deletes) the queues of a prefix, each at the next node: there its leader will be. */
static int each_queue(const char* prefix, int queues, int declare) {
  static uint8_t frame[256], answer[IN_BYTES + 1];
  int fds[16], failed = 0;
  for (int i = 0; i < port_count; i++)
    if ((fds[i] = log_in(ports[i])) < 0 || open_channel(fds[i], 1))
      return -1;
  for (int i = 0; i < queues && !failed; i++) {
    char name[64];
    snprintf(name, sizeof name, "%s-%d", prefix, i);
    uint8_t* p = put(begin(frame, 1, 1, METHOD(50, declare ? 10 : 40)), 0, 2);
    p = put_short(p, name);
    *p++ = declare ? 2 : 0; /* durable */
    if (declare) {
      uint8_t* table = p;
      p = put_short(put(p, 0, 4), "x-queue-type");
      *p++ = 'S';
      p = put_long(p, queue_type, strlen(queue_type));
      put(table, p - table - 4, 4);
    }
    failed = ask(fds[i % port_count], frame, p, METHOD(50, declare ? 11 : 41), answer);
  }
  for (int i = 0; i < port_count; i++)
    close(fds[i]);
  return failed;
}

static void make_message(connection_t* c, const char* queue) {
  size_t size = c->group->size;
  c->message = calloc(1, size + 256);
  uint8_t *frame = c->message, *p = put(begin(frame, 1, PUBLISHING, METHOD(60, 40)), 0, 2);
  p = put_short(put_short(p, ""), queue);
  *p++ = 0;
  frame = end(frame, p);
  p = put(put(begin(frame, 2, PUBLISHING, 0), METHOD(60, 0), 4), size, 8);
  p = put(p, 0x1000, 2); /* delivery mode */
  *p++ = 2;
  frame = end(frame, p);
  p = begin(frame, 3, PUBLISHING, 0);
  c->stamp_at = p - c->message;
  memset(p, 'x', size);
  c->message_size = end(frame, p + size) - c->message;
}

static int open_connection(connection_t* c) {
  static uint8_t frame[256], answer[IN_BYTES + 1];
  group_t* g = c->group;
  char queue[64];
  int fd = log_in(ports[c->id % port_count]);
  c->fd = fd;
  if (fd < 0)
    return -1;
  c->in = malloc(IN_BYTES);
  c->out_size = OUT_BYTES + 2 * (g->size + 256);
  c->out = malloc(c->out_size + (g->prefetch + 64) * 21);
  if (g->publish[0]) {
    snprintf(queue, sizeof queue, "%s-%d", g->publish, c->id % g->queues);
    make_message(c, queue);
    c->sent_at = calloc(g->window + 1, sizeof *c->sent_at);
    c->next_tag = c->low_tag = 1;
    c->quota = g->limit ? g->limit / g->count : INT64_MAX;
    if (open_channel(fd, PUBLISHING))
      return -1;
    uint8_t* p = begin(frame, 1, PUBLISHING, METHOD(85, 10));
    *p++ = 0;
    if (g->window && ask(fd, frame, p, METHOD(85, 11), answer))
      return -1;
  }
  if (g->consume[0]) {
    snprintf(queue, sizeof queue, "%s-%d", g->consume, c->id % g->queues);
    c->work = calloc(g->prefetch + 1, sizeof *c->work);
    if (open_channel(fd, CONSUMING))
      return -1;
    uint8_t* p = put(put(begin(frame, 1, CONSUMING, METHOD(60, 10)), 0, 4), g->prefetch, 2);
    *p++ = 0;
    if (ask(fd, frame, p, METHOD(60, 11), answer))
      return -1;
    p = put_short(put_short(put(begin(frame, 1, CONSUMING, METHOD(60, 20)), 0, 2), queue), "c");
    *p++ = 0;
    if (ask(fd, frame, put(p, 0, 4), METHOD(60, 21), answer))
      return -1;
  }
  fcntl(fd, F_SETFL, O_NONBLOCK);
  c->started = c->last_write = now_ns();
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  return epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

/* ---- running ----------------------------------------------------------------------------- */

static void lose(connection_t* c, const char* why) {
  if (c->fd < 0)
    return;
  if (c->group->disconnected++ == 0)
    fprintf(stderr, "%s: disconnected: %s\n", c->group->name, why);
  close(c->fd);
  c->fd = -1;
}

static void acknowledge(connection_t* c, uint64_t tag) {
  uint8_t* frame = c->out + c->out_used;
  uint8_t* p = put(begin(frame, 1, CONSUMING, METHOD(60, 80)), tag, 8);
  *p++ = 1;
  c->out_used = end(frame, p) - c->out;
  c->ack_tag = tag;
}

static void confirm(connection_t* c, uint64_t tag, int multiple, int nack) {
  long ring = c->group->window + 1;
  long long now = now_ns();
  for (uint64_t k = multiple ? c->low_tag : tag; k <= tag && k < c->next_tag; k++) {
    long long* at = &c->sent_at[k % ring];
    if (*at == 0 || k < c->low_tag)
      continue;
    if (nack)
      c->group->nacked++;
    else {
      c->group->confirmed++;
      record(c->group, 1, now - *at);
    }
    *at = 0;
    c->outstanding--;
  }
  while (c->low_tag < c->next_tag && c->sent_at[c->low_tag % ring] == 0)
    c->low_tag++;
}

static void received(connection_t* c) {
  group_t* g = c->group;
  if (g->delay_us) {
    c->work[(c->work_head + c->work_count++) % (g->prefetch + 1)] = c->got_tag;
    return;
  }
  g->received++;
  if (c->got_tag - c->ack_tag >= (uint64_t)g->ack)
    acknowledge(c, c->got_tag);
}

/* A slow consumer has finished what it could by now. */
static void work(connection_t* c, long long now) {
  group_t* g = c->group;
  uint64_t done = 0;
  if (c->work_count && c->busy_until == 0)
    c->busy_until = now + g->delay_us * 1000;
  while (c->work_count && c->busy_until <= now) {
    done = c->work[c->work_head];
    c->work_head = (c->work_head + 1) % (g->prefetch + 1);
    c->work_count--;
    g->received++;
    c->busy_until = c->work_count ? c->busy_until + g->delay_us * 1000 : 0;
  }
  if (done)
    acknowledge(c, done);
}

static void method(connection_t* c, int channel, const uint8_t* p) {
  uint8_t* frame = c->out + c->out_used;
  switch (get(p, 4)) {
  case METHOD(60, 80):
    confirm(c, get(p + 4, 8), p[12], 0);
    break;
  case METHOD(60, 120):
    confirm(c, get(p + 4, 8), p[12] & 1, 1);
    break;
  case METHOD(60, 60):
    c->got_tag = get(p + 5 + p[4], 8);
    break;
  case METHOD(10, 60):
    c->group->blocked++;
    break;
  case METHOD(20, 20):
    c->group->flows++;
    c->stopped = !p[4];
    frame = put(begin(frame, 1, channel, METHOD(20, 21)), p[4], 1);
    c->out_used = end(c->out + c->out_used, frame) - c->out;
    break;
  case METHOD(10, 50):
  case METHOD(20, 40): {
    char why[300];
    snprintf(why, sizeof why, "%lu %.*s", (unsigned long)get(p + 4, 2), p[6], p + 7);
    lose(c, why);
    break;
  }
  }
}

static void frame_in(connection_t* c, const uint8_t* frame, size_t size) {
  const uint8_t* p = frame + 7;
  if (frame[0] == 1)
    method(c, get(frame + 1, 2), p);
  else if (frame[0] == 2) {
    c->body_left = get(p + 4, 8);
    c->body_first = 1;
  } else if (frame[0] == 3) {
    if (c->body_first && size >= 8) {
      long long sent;
      memcpy(&sent, p, 8);
      record(c->group, 0, now_ns() - sent);
    }
    c->body_first = 0;
    c->body_left -= size;
    if (c->body_left == 0)
      received(c);
  }
}

static void readable(connection_t* c) {
  ssize_t got = recv(c->fd, c->in + c->in_used, IN_BYTES - c->in_used, 0);
  if (got <= 0) {
    if (got == 0 || (errno != EAGAIN && errno != EINTR))
      lose(c, got ? strerror(errno) : "end of stream");
    return;
  }
  c->in_used += got;
  size_t at = 0;
  while (c->fd >= 0 && c->in_used - at >= 8) {
    size_t size = get(c->in + at + 3, 4);
    if (c->in_used - at < size + 8)
      break;
    frame_in(c, c->in + at, size);
    at += size + 8;
  }
  memmove(c->in, c->in + at, c->in_used - at);
  c->in_used -= at;
}

static void publish(connection_t* c, long long now) {
  group_t* g = c->group;
  long due = INT64_MAX;
  if (g->rate > 0) { /* what could not go in time is not made up for */
    double each = g->rate / g->count, late = 0.05 * each + 2;
    due = (long)((now - c->started) / 1e9 * each);
    if (due - c->published > late) {
      c->started += (long long)((due - c->published - late) / each * 1e9);
      due = c->published + late;
    }
  }
  while (c->out_used + c->message_size < c->out_size && c->published < due &&
         c->published < c->quota && (!g->window || c->next_tag - c->low_tag < (uint64_t)g->window)) {
    memcpy(c->out + c->out_used, c->message, c->message_size);
    memcpy(c->out + c->out_used + c->stamp_at, &now, 8);
    c->out_used += c->message_size;
    if (g->window) {
      c->sent_at[c->next_tag % (g->window + 1)] = now;
      c->next_tag++;
      c->outstanding++;
    }
    c->published++;
    g->sent++;
  }
}

static void flush(connection_t* c, long long now) {
  if (c->out_used > c->out_done) {
    ssize_t done = send(c->fd, c->out + c->out_done, c->out_used - c->out_done, MSG_NOSIGNAL);
    if (done < 0 && errno != EAGAIN && errno != EINTR) {
      lose(c, strerror(errno));
      return;
    }
    if (done > 0) {
      c->out_done += done;
      c->last_write = now;
    }
    memmove(c->out, c->out + c->out_done, c->out_used - c->out_done); /* room for acknowledgements */
    c->out_used -= c->out_done;
    c->out_done = 0;
  }
  int writing = c->out_used > c->out_done;
  if (writing != c->writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
    c->writing = writing;
  }
}

/* Does what is to be done on one connection now. */
static void turn(connection_t* c, long long now) {
  if (c->fd < 0)
    return;
  if (c->group->delay_us && c->group->consume[0])
    work(c, now);
  if (publishing && c->message && !c->stopped && c->out_used == 0)
    publish(c, now);
  if (c->out_used == 0 && now - c->last_write > HEARTBEAT_S * 1000000000LL / 3) {
    c->out_used = end(c->out, begin(c->out, 8, 0, 0)) - c->out;
  }
  flush(c, now);
}

static void poll_once(int wait_ms) {
  static struct epoll_event events[512];
  int count = epoll_wait(poller, events, 512, wait_ms);
  for (int i = 0; i < count; i++) {
    connection_t* c = events[i].data.ptr;
    if (c->fd >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
      readable(c);
    turn(c, now_ns());
  }
}

/* Runs until `until`; turns all connections every 2 ms for those that wait for the time. */
static void run_until(long long until) {
  static long long swept;
  for (;;) {
    long long now = now_ns();
    if (now >= until)
      return;
    if (now - swept > 2000000) {
      swept = now;
      for (int i = 0; i < connection_count; i++)
        turn(&connections[i], now);
    }
    poll_once(1);
  }
}

static void run_seconds(int count, int* at) {
  static long before[GROUPS][3];
  static long long next;
  if (*at == 0)
    next = now_ns();
  for (int s = 0; s < count && *at < SECONDS; s++, (*at)++) {
    next += 1000000000LL;
    run_until(next);
    for (int i = 0; i < group_count; i++) {
      group_t* g = &groups[i];
      long now[3] = {g->sent, g->confirmed, g->received};
      for (int k = 0; k < 3; k++) {
        g->each[*at][k] = now[k] - before[i][k];
        before[i][k] = now[k];
      }
    }
  }
}

/* ---- arguments and output ---------------------------------------------------------------- */

static void parse_group(char* text) {
  group_t* g = &groups[group_count++];
  *g = (group_t){.count = 1, .queues = 1, .size = 100, .prefetch = 1000, .ack = 100};
  for (char* part = strtok(text, ","); part; part = strtok(NULL, ",")) {
    char* value = strchr(part, '=');
    if (!value) {
      fprintf(stderr, "no value: %s\n", part);
      exit(2);
    }
    *value++ = 0;
    if (!strcmp(part, "name"))
      snprintf(g->name, sizeof g->name, "%s", value);
    else if (!strcmp(part, "publish"))
      snprintf(g->publish, sizeof g->publish, "%s", value);
    else if (!strcmp(part, "consume"))
      snprintf(g->consume, sizeof g->consume, "%s", value);
    else if (!strcmp(part, "connections"))
      g->count = atoi(value);
    else if (!strcmp(part, "queues"))
      g->queues = atoi(value);
    else if (!strcmp(part, "size"))
      g->size = atoi(value) < 8 ? 8 : atoi(value);
    else if (!strcmp(part, "prefetch"))
      g->prefetch = atoi(value);
    else if (!strcmp(part, "ack"))
      g->ack = atoi(value);
    else if (!strcmp(part, "window"))
      g->window = atol(value);
    else if (!strcmp(part, "delay_us"))
      g->delay_us = atol(value);
    else if (!strcmp(part, "limit"))
      g->limit = atol(value);
    else if (!strcmp(part, "rate"))
      g->rate = atof(value);
    else {
      fprintf(stderr, "unknown key: %s\n", part);
      exit(2);
    }
  }
  if (g->size + 256 > 120000 || g->prefetch < 1 || g->ack > g->prefetch || g->count < 1) {
    fprintf(stderr, "%s: size at most 119,744, prefetch at least 1 and ack, connections at least 1\n", g->name);
    exit(2);
  }
}

static void print_group(group_t* g, int at) {
  static const char* names[3] = {"sent_each", "confirmed_each", "received_each"};
  printf("\"%s\":{", g->name);
  for (int k = 0; k < 3; k++) {
    printf("\"%s\":[", names[k]);
    for (int s = 0; s < at; s++)
      printf("%s%ld", s ? "," : "", g->each[s][k]);
    printf("],");
  }
  printf("\"e2e_ms_p50\":%.2f,\"e2e_ms_p99\":%.2f,\"e2e_ms_max\":%.2f,"
         "\"confirm_ms_p50\":%.2f,\"confirm_ms_p99\":%.2f,\"confirm_ms_max\":%.2f,",
         percentile_ms(g, 0, .5), percentile_ms(g, 0, .99), g->longest[0] / 1e6,
         percentile_ms(g, 1, .5), percentile_ms(g, 1, .99), g->longest[1] / 1e6);
  printf("\"sent\":%ld,\"confirmed\":%ld,\"nacked\":%ld,\"received\":%ld,\"disconnected\":%ld,"
         "\"refused\":%ld,\"blocked\":%ld,\"flows\":%ld}",
         g->sent, g->confirmed, g->nacked, g->received, g->disconnected, g->refused, g->blocked,
         g->flows);
}

static void open_all(int consumers) {
  for (int i = 0; i < connection_count; i++) {
    connection_t* c = &connections[i];
    if ((c->group->consume[0] != 0) != consumers)
      continue;
    if (open_connection(c)) {
      c->group->refused++;
      if (c->fd >= 0)
        close(c->fd);
      c->fd = -1;
    }
    if (i % 20 == 19)
      poll_once(0);
  }
}

int main(int count, char** words) {
  int declare = 1, erase = 1;
  for (int i = 1; i + 1 < count; i += 2) {
    char *key = words[i], *value = words[i + 1];
    if (!strcmp(key, "--ports")) {
      for (char* port = strtok(value, ","); port && port_count < 16; port = strtok(NULL, ","))
        ports[port_count++] = atoi(port);
    } else if (!strcmp(key, "--group") && group_count < GROUPS)
      parse_group(value);
    else if (!strcmp(key, "--seconds"))
      seconds = atoi(value);
    else if (!strcmp(key, "--warmup"))
      warmup = atoi(value);
    else if (!strcmp(key, "--drain"))
      drain = atoi(value);
    else if (!strcmp(key, "--type"))
      queue_type = value;
    else if (!strcmp(key, "--declare"))
      declare = atoi(value);
    else if (!strcmp(key, "--delete"))
      erase = atoi(value);
    else {
      fprintf(stderr, "unknown or too many: %s\n", key);
      return 2;
    }
  }
  if (!port_count || !group_count || warmup + seconds + drain > SECONDS) {
    fprintf(stderr, "wanted: --ports, --group, and at most %d seconds in all\n", SECONDS);
    return 2;
  }
  poller = epoll_create1(0);
  for (int i = 0; i < group_count; i++)
    connection_count += groups[i].count;
  connections = calloc(connection_count, sizeof *connections);
  connection_t* next = connections;
  for (int i = 0; i < group_count; i++) {
    group_t* g = &groups[i];
    for (int k = 0; k < g->count; k++, next++)
      *next = (connection_t){.fd = -1, .id = k, .group = g};
    if (declare && g->publish[0] && each_queue(g->publish, g->queues, 1))
      return fprintf(stderr, "cannot declare %s\n", g->publish), 1;
    if (declare && g->consume[0] && each_queue(g->consume, g->queues, 1))
      return fprintf(stderr, "cannot declare %s\n", g->consume), 1;
  }
  open_all(1);
  open_all(0);
  int at = 0;
  for (int i = 0; i < connection_count; i++)
    connections[i].started = now_ns();
  publishing = 1;
  run_seconds(warmup, &at);
  measuring = 1;
  run_seconds(seconds, &at);
  measuring = publishing = 0;
  run_seconds(drain, &at);
  printf("{\"warmup\":%d,\"seconds\":%d,\"groups\":{", warmup, seconds);
  for (int i = 0; i < group_count; i++) {
    if (i)
      printf(",");
    print_group(&groups[i], at);
  }
  printf("}}\n");
  for (int i = 0; i < connection_count; i++)
    if (connections[i].fd >= 0)
      close(connections[i].fd);
  for (int i = 0; i < group_count && erase; i++)
    if (groups[i].publish[0] && each_queue(groups[i].publish, groups[i].queues, 0))
      return fprintf(stderr, "cannot delete %s\n", groups[i].publish), 0;
  return 0;
}
