/* A load generator for NATS JetStream that speaks its text protocol itself: P publishers (window W of
 * unacknowledged publishes), C consumers that share the push consumers of Q work-queue streams with R
 * replicas. Takes the arguments of amqpload and prints the same JSON line.
 * cc -O2 -D_GNU_SOURCE -o natsload natsload.c -lpthread -lm */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "latency.h"

static int ports[16], nports, P = 1, C = 1, Q = 1, size = 100, W = 1000, prefetch = 1000;
static int dur = 10, warm = 2, replicas = 3;
static const char* prefix = "load";
static atomic_long sent, confirmed, received, errors;
static atomic_int stop_pub, stop_con;

/* Connections */

typedef struct {
  int fd;
  char *in, *out;           /* what came and is not parsed yet; what is to be written */
  size_t begin, end, space; /* of `in` */
  size_t outgoing, written, room;
} Link;
typedef struct {
  char *subject, *reply, *payload; /* in the link's buffer, until the next read; reply may be NULL */
  size_t length;
} Message;

static void failed(const char* what) {
  fprintf(stderr, "error: %s\n", what);
  atomic_fetch_add(&errors, 1);
}
static void put(Link* link, const void* data, size_t count) {
  if (link->outgoing + count > link->room) {
    link->room = 2 * (link->outgoing + count);
    link->out = realloc(link->out, link->room);
  }
  memcpy(link->out + link->outgoing, data, count);
  link->outgoing += count;
}
static void put_text(Link* link, const char* text) {
  put(link, text, strlen(text));
}
static int open_link(Link* link, int number) {
  memset(link, 0, sizeof *link);
  link->in = malloc(link->space = 1 << 20);
  for (int attempt = 0; attempt < 5 * nports; attempt++) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons(ports[(number + attempt) % nports]);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    link->fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    setsockopt(link->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!connect(link->fd, (struct sockaddr*)&address, sizeof address)) {
      put_text(link, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,"
                     "\"no_responders\":true,\"lang\":\"c\",\"version\":\"1\"}\r\n");
      return 1;
    }
    close(link->fd);
    usleep(200000);
  }
  failed("cannot connect");
  return 0;
}
static void close_link(Link* link) {
  close(link->fd);
  free(link->in);
  free(link->out);
}
/* Write what waits and read what is there, for at most so many ms; 0 when the link broke. */
static int move_bytes(Link* link, int ms) {
  int writes = link->outgoing > link->written;
  struct pollfd waits = {link->fd, POLLIN | (writes ? POLLOUT : 0), 0};
  if (poll(&waits, 1, ms) < 0)
    return errno == EINTR;
  if (waits.revents & POLLOUT) {
    ssize_t n = send(link->fd, link->out + link->written, link->outgoing - link->written,
                     MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN)
      return 0;
    if (n > 0 && (link->written += n) == link->outgoing)
      link->outgoing = link->written = 0;
  }
  if (waits.revents & (POLLIN | POLLHUP | POLLERR)) {
    memmove(link->in, link->in + link->begin, link->end - link->begin);
    link->end -= link->begin;
    link->begin = 0;
    if (link->space - link->end < 65536)
      link->in = realloc(link->in, link->space *= 2);
    ssize_t n = recv(link->fd, link->in + link->end, link->space - link->end, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN))
      return 0;
    link->end += n > 0 ? n : 0;
  }
  return 1;
}
/* Parse the next message of those that are there; 0 when there is none. Pings are answered. */
static int next_message(Link* link, Message* message) {
  for (;;) {
    char *line = link->in + link->begin, *limit = link->in + link->end;
    char* end = memchr(line, '\n', limit - line);
    if (!end)
      return 0;
    size_t after = end + 1 - link->in;
    if (!strncmp(line, "PING", 4))
      put_text(link, "PONG\r\n");
    if (!strncmp(line, "-ERR", 4)) {
      *end = 0;
      failed(line);
    }
    int plain = !strncmp(line, "MSG ", 4), headed = !strncmp(line, "HMSG ", 5);
    if (!plain && !headed) {
      link->begin = after;
      continue;
    }
    char* last = end;
    while (last[-1] != ' ')
      last--;
    size_t length = strtoul(last, NULL, 10), before = 0;
    if (after + length + 2 > link->end)
      return 0;
    *end = 0;
    char* words[6] = {0};
    int count = 0;
    for (char *rest = line, *word; count < 6 && (word = strsep(&rest, " "));)
      words[count++] = word;
    if (headed)
      before = strtoul(words[count - 2], NULL, 10);
    message->subject = words[1];
    message->reply = count == (headed ? 6 : 5) ? words[3] : NULL;
    message->payload = link->in + after + before;
    message->length = length - before;
    link->begin = after + length + 2;
    return 1;
  }
}

/* Streams */

/* Ask the JetStream API; 1 when it did so, 0 when it answers with an error, or not within 5 s. */
static int ask(Link* link, const char* subject, const char* json, char* answer, size_t room) {
  static int asked;
  char head[512];
  snprintf(answer, room, "the connection broke");
  snprintf(head, sizeof head, "SUB _ask.%d %d\r\nPUB %s _ask.%d %zu\r\n", asked, 9000 + asked,
           subject, asked, strlen(json));
  put_text(link, head);
  put_text(link, json);
  put_text(link, "\r\n");
  snprintf(head, sizeof head, "_ask.%d", asked++);
  for (long long end = now_ns() + 5000000000LL; now_ns() < end;) {
    if (!move_bytes(link, 100))
      return 0;
    for (Message message; next_message(link, &message);)
      if (!strcmp(message.subject, head)) {
        snprintf(answer, room, "%.*s", (int)message.length, message.payload);
        return message.length && !strstr(answer, "\"error\"");
      }
  }
  snprintf(answer, room, "no answer");
  return 0;
}
/* Make a queue's stream and the consumer that its subscribers share; tried for 30 s. */
static int make_queue(Link* link, int queue) {
  char subject[256], json[1024], answer[1024];
  snprintf(subject, sizeof subject, "$JS.API.STREAM.DELETE.%s-%d", prefix, queue);
  ask(link, subject, "", answer, sizeof answer);
  for (int attempt = 0; attempt < 60; attempt++, usleep(500000)) {
    snprintf(subject, sizeof subject, "$JS.API.STREAM.CREATE.%s-%d", prefix, queue);
    snprintf(json, sizeof json,
             "{\"name\":\"%s-%d\",\"subjects\":[\"%s.%d\"],\"retention\":\"workqueue\","
             "\"storage\":\"file\",\"num_replicas\":%d,\"max_consumers\":-1,\"max_msgs\":-1,"
             "\"max_bytes\":-1,\"discard\":\"old\"}",
             prefix, queue, prefix, queue, replicas);
    if (!ask(link, subject, json, answer, sizeof answer))
      continue;
    snprintf(subject, sizeof subject, "$JS.API.CONSUMER.DURABLE.CREATE.%s-%d.c", prefix, queue);
    snprintf(json, sizeof json,
             "{\"stream_name\":\"%s-%d\",\"config\":{\"durable_name\":\"c\",\"deliver_subject\":"
             "\"to.%s.%d\",\"deliver_group\":\"c\",\"deliver_policy\":\"all\",\"ack_policy\":"
             "\"explicit\",\"max_ack_pending\":%d}}",
             prefix, queue, prefix, queue, prefetch);
    if (!C || ask(link, subject, json, answer, sizeof answer))
      return 1;
  }
  failed(answer);
  return 0;
}

/* Clients */

typedef struct {
  long sequence, acked; /* publishes, and acknowledgements of these */
  long long* times;     /* when each was published, in a ring */
  int ring;
} Window;

static void take_acks(Link* link, Window* window) {
  for (Message message; next_message(link, &message);) {
    char* dot = strrchr(message.subject, '.');
    long number = dot ? strtol(dot + 1, NULL, 10) : 0;
    window->acked++;
    if (memmem(message.payload, message.length, "\"error\"", 7) || !message.length) {
      failed("a publish was refused");
      continue;
    }
    record(1, now_ns() - window->times[number % window->ring]);
    atomic_fetch_add_explicit(&confirmed, 1, memory_order_relaxed);
  }
}
static void* publish(void* argument) {
  int id = (int)(long)argument;
  Link link;
  if (!open_link(&link, id))
    return 0;
  Window window = {0, 0, calloc(2 * W + 16, sizeof(long long)), 2 * W + 16};
  int length = size < 16 ? 16 : size;
  char *body = malloc(length + 2), head[256];
  memset(body, 'x', length);
  memcpy(body + length, "\r\n", 2);
  snprintf(head, sizeof head, "SUB _acks.%d.* 1\r\n", id);
  put_text(&link, head);
  while (!atomic_load(&stop_pub)) {
    while (window.sequence - window.acked < W && link.outgoing - link.written < 65536) {
      long long now = now_ns();
      window.times[++window.sequence % window.ring] = now;
      memcpy(body, &now, sizeof now);
      snprintf(head, sizeof head, "PUB %s.%d _acks.%d.%ld %d\r\n", prefix, id % Q, id,
               window.sequence, length);
      put_text(&link, head);
      put(&link, body, length + 2);
      atomic_fetch_add_explicit(&sent, 1, memory_order_relaxed);
    }
    if (!move_bytes(&link, 100)) {
      failed("a publisher's connection broke");
      break;
    }
    take_acks(&link, &window);
  }
  for (long long end = now_ns() + 1000000000LL; window.acked < window.sequence && now_ns() < end;) {
    if (!move_bytes(&link, 100))
      break;
    take_acks(&link, &window);
  }
  close_link(&link);
  return 0;
}
static void* consume(void* argument) {
  int id = (int)(long)argument;
  Link link;
  if (!open_link(&link, id + 1))
    return 0;
  char head[256];
  snprintf(head, sizeof head, "SUB to.%s.%d c 1\r\n", prefix, id % Q);
  put_text(&link, head);
  while (!atomic_load(&stop_con)) {
    if (!move_bytes(&link, 100)) {
      failed("a consumer's connection broke");
      break;
    }
    for (Message message; next_message(&link, &message);) {
      if (!message.reply || message.length < sizeof(long long))
        continue;
      long long then;
      memcpy(&then, message.payload, sizeof then);
      record(0, now_ns() - then);
      atomic_fetch_add_explicit(&received, 1, memory_order_relaxed);
      snprintf(head, sizeof head, "PUB %s 4\r\n+ACK\r\n", message.reply);
      put_text(&link, head);
    }
  }
  while (link.outgoing > link.written && move_bytes(&link, 100))
    ;
  close_link(&link);
  return 0;
}

static int parse(int count, char** words) {
  for (int i = 1; i + 1 < count; i += 2) {
    char *name = words[i], *value = words[i + 1];
    struct {
      const char* name;
      int* into;
    } numbers[] = {{"--publishers", &P}, {"--consumers", &C},   {"--queues", &Q},
                   {"--size", &size},    {"--window", &W},      {"--prefetch", &prefetch},
                   {"--seconds", &dur},  {"--warmup", &warm},   {"--replicas", &replicas}};
    int known = 0;
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
      if (!strcmp(name, numbers[k].name))
        *numbers[k].into = atoi(value), known = 1;
    if (!strcmp(name, "--prefix"))
      prefix = value, known = 1;
    if (!strcmp(name, "--ports")) {
      for (char* port = strtok(value, ","); port && nports < 16; port = strtok(NULL, ","))
        ports[nports++] = atoi(port);
      known = 1;
    }
    if (!known) {
      fprintf(stderr, "unknown %s\n", name);
      return 0;
    }
  }
  if (!nports)
    ports[nports++] = 4222;
  if (W < 1)
    fprintf(stderr, "--window has to be at least 1: a publish without one is not known to be kept\n");
  return W >= 1;
}
int main(int count, char** words) {
  if (!parse(count, words))
    return 2;
  Link link;
  if (!open_link(&link, 0))
    return 1;
  for (int queue = 0; queue < Q; queue++)
    if (!make_queue(&link, queue))
      return 1;
  close_link(&link);
  pthread_t *publishers = calloc(P, sizeof(pthread_t)), *consumers = calloc(C, sizeof(pthread_t));
  for (long i = 0; i < C; i++)
    pthread_create(&consumers[i], 0, consume, (void*)i);
  usleep(300000);
  for (long i = 0; i < P; i++)
    pthread_create(&publishers[i], 0, publish, (void*)i);
  sleep(warm);
  atomic_store(&measuring, 1);
  long s0 = sent, f0 = confirmed, r0 = received;
  long long t0 = now_ns();
  sleep(dur);
  double seconds = (now_ns() - t0) / 1e9;
  long s1 = sent, f1 = confirmed, r1 = received;
  atomic_store(&measuring, 0);
  atomic_store(&stop_pub, 1);
  for (int i = 0; i < P; i++)
    pthread_join(publishers[i], 0);
  long seen = -1;
  for (long long end = now_ns(); C && received < confirmed && now_ns() < end + 5000000000LL;) {
    if (received != seen) /* a backlog that shrinks is waited for */
      seen = received, end = now_ns();
    usleep(50000);
  }
  atomic_store(&stop_con, 1);
  for (int i = 0; i < C; i++)
    pthread_join(consumers[i], 0);
  printf("{\"sent_s\":%.0f,\"confirmed_s\":%.0f,\"received_s\":%.0f,\"e2e_ms_p50\":%.2f,"
         "\"e2e_ms_p99\":%.2f,\"confirm_ms_p50\":%.2f,\"confirm_ms_p99\":%.2f,\"sent\":%ld,"
         "\"confirmed\":%ld,\"nacked\":0,\"received\":%ld,\"errors\":%ld}\n",
         (s1 - s0) / seconds, (f1 - f0) / seconds, (r1 - r0) / seconds, percentile(0, .5),
         percentile(0, .99), percentile(1, .5), percentile(1, .99), (long)sent, (long)confirmed,
         (long)received, (long)errors);
  return errors ? 1 : 0;
}
