/* A neutral AMQP 0-9-1 load generator on rabbitmq-c: P publishers (confirm window W), C consumers
 * (prefetch, multiple acks), Q queues declared with x-queue-type. Prints one JSON line. With
 * --messages N it ends when so many are confirmed and (with consumers) received and acknowledged,
 * and rates are over all of that time.
 * cc -O2 -o amqpload amqpload.c -lrabbitmq -lpthread -lm */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "latency.h"
static int ports[16], nports, P = 1, C = 1, Q = 1, size = 100, W = 1000, prefetch = 1000,
                              acke = 100, dur = 10, warm = 2;
static double rate = 0;
static long total = 0;
static const char *qtype = "quorum", *prefix = "load";
static int durable = 1, declare = 1;
static atomic_long sent, confirmed, nacked, received, errors;
static atomic_int stop_pub, stop_con;
static void die(const char* w, amqp_rpc_reply_t r) {
  fprintf(
      stderr, "error: %s type=%d lib=%s", w, r.reply_type,
      r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION ? amqp_error_string2(r.library_error) : "");
  if (r.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION) {
    if (r.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
      amqp_connection_close_t* m = r.reply.decoded;
      fprintf(stderr, " conn close %d %.*s", m->reply_code, (int)m->reply_text.len,
              (char*)m->reply_text.bytes);
    } else if (r.reply.id == AMQP_CHANNEL_CLOSE_METHOD) {
      amqp_channel_close_t* m = r.reply.decoded;
      fprintf(stderr, " chan close %d %.*s", m->reply_code, (int)m->reply_text.len,
              (char*)m->reply_text.bytes);
    }
  }
  fprintf(stderr, "\n");
  atomic_fetch_add(&errors, 1);
}
static amqp_connection_state_t conn(int i) {
  for (int t = 0; t < 5; t++) {
    amqp_connection_state_t c = amqp_new_connection();
    amqp_socket_t* s = amqp_tcp_socket_new(c);
    if (amqp_socket_open(s, "127.0.0.1", ports[(i + t) % nports])) {
      amqp_destroy_connection(c);
      usleep(200000);
      continue;
    }
    amqp_rpc_reply_t r =
        amqp_login(c, "/", 0, 131072, 60, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    if (r.reply_type != AMQP_RESPONSE_NORMAL) {
      die("login", r);
      return NULL;
    }
    amqp_channel_open(c, 1);
    r = amqp_get_rpc_reply(c);
    if (r.reply_type != AMQP_RESPONSE_NORMAL) {
      die("channel", r);
      return NULL;
    }
    return c;
  }
  fprintf(stderr, "cannot connect\n");
  atomic_fetch_add(&errors, 1);
  return NULL;
}
static void qname(char* b, int i) {
  sprintf(b, "%s-%d", prefix, i % Q);
}
static void* pub(void* a) {
  int id = (int)(long)a;
  amqp_connection_state_t c = conn(id);
  if (!c)
    return 0;
  if (W > 0) {
    amqp_confirm_select(c, 1);
  }
  char q[64];
  qname(q, id);
  char* body = malloc(size < 16 ? 16 : size);
  memset(body, 'x', size);
  amqp_bytes_t b = {size < 16 ? 16 : size, body};
  amqp_basic_properties_t pr = {0};
  pr._flags = AMQP_BASIC_DELIVERY_MODE_FLAG;
  pr.delivery_mode = 2;
  long seq = 0, acked = 0;
  long quota = total ? total / P + (id < total % P) : LONG_MAX;
  int ring = W > 0 ? W * 2 + 16 : 1;
  long long* ts = calloc(ring, sizeof(long long));
  long long t0 = now_ns();
  while (!atomic_load(&stop_pub)) {
    if (rate > 0) {
      long long due = t0 + (long long)(seq / (rate / P) * 1e9);
      while (now_ns() < due && !atomic_load(&stop_pub)) {
        if (W > 0 && acked < seq)
          break;
        usleep(200);
      }
      if (now_ns() < due) {
        goto drain;
      }
    }
    if (seq >= quota && (W == 0 || acked >= seq))
      break;
    if (seq < quota && (W == 0 || seq - acked < W)) {
      long long n = now_ns();
      memcpy(body, &n, 8);
      int r = amqp_basic_publish(c, 1, amqp_empty_bytes, amqp_cstring_bytes(q), 0, 0, &pr, b);
      if (r) {
        fprintf(stderr, "publish: %s\n", amqp_error_string2(r));
        atomic_fetch_add(&errors, 1);
        break;
      }
      seq++;
      if (W > 0)
        ts[seq % ring] = n;
      atomic_fetch_add_explicit(&sent, 1, memory_order_relaxed);
      if (W > 0 && seq < quota && seq - acked < W && (seq & 15))
        continue;
      if (W == 0) {
        if (seq & 63)
          continue;
      }
    }
  drain:
    if (1) {
      amqp_frame_t f;
      int full = W > 0 && (seq - acked >= W || seq >= quota);
      struct timeval tv = {0, full ? 100000 : 0};
      if (!full && rate > 0)
        tv.tv_usec = 200;
      int r;
      while ((r = amqp_simple_wait_frame_noblock(c, &f, &tv)) == AMQP_STATUS_OK) {
        if (f.frame_type == AMQP_FRAME_METHOD) {
          if (f.payload.method.id == AMQP_BASIC_ACK_METHOD) {
            amqp_basic_ack_t* m = f.payload.method.decoded;
            long long n = now_ns();
            if (m->multiple || m->delivery_tag == 0) {
              for (long k = acked + 1; k <= (long)m->delivery_tag; k++)
                record(1, n - ts[k % ring]);
              atomic_fetch_add(&confirmed, (long)m->delivery_tag - acked);
              acked = m->delivery_tag;
            } else {
              record(1, n - ts[m->delivery_tag % ring]);
              atomic_fetch_add(&confirmed, 1);
              if ((long)m->delivery_tag > acked)
                acked++;
            }
          } else if (f.payload.method.id == AMQP_BASIC_NACK_METHOD) {
            atomic_fetch_add(&nacked, 1);
            acked++;
          } else if (f.payload.method.id == AMQP_CHANNEL_CLOSE_METHOD ||
                     f.payload.method.id == AMQP_CONNECTION_CLOSE_METHOD) {
            fprintf(stderr, "closed by server\n");
            atomic_fetch_add(&errors, 1);
            return 0;
          }
        }
        tv.tv_sec = 0;
        tv.tv_usec = 0;
        amqp_maybe_release_buffers(c);
      }
      if (r != AMQP_STATUS_TIMEOUT) {
        fprintf(stderr, "wait: %s\n", amqp_error_string2(r));
        atomic_fetch_add(&errors, 1);
        break;
      }
    }
  }
  if (!total)
    sleep(1);
  amqp_connection_close(c, 200);
  amqp_destroy_connection(c);
  return 0;
}
static void* con(void* a) {
  int id = (int)(long)a;
  amqp_connection_state_t c = conn(id + 1);
  if (!c)
    return 0;
  char q[64];
  qname(q, id);
  if (prefetch > 0)
    amqp_basic_qos(c, 1, 0, prefetch, 0);
  amqp_basic_consume(c, 1, amqp_cstring_bytes(q), amqp_empty_bytes, 0, prefetch == 0, 0,
                     amqp_empty_table);
  amqp_rpc_reply_t rr = amqp_get_rpc_reply(c);
  if (rr.reply_type != AMQP_RESPONSE_NORMAL) {
    die("consume", rr);
    return 0;
  }
  long n = 0;
  unsigned long last = 0;
  int pend = 0;
  while (!atomic_load(&stop_con)) {
    amqp_envelope_t e;
    struct timeval tv = {0, pend ? 20000 : 200000};
    amqp_maybe_release_buffers(c);
    amqp_rpc_reply_t r = amqp_consume_message(c, &e, &tv, 0);
    if (r.reply_type != AMQP_RESPONSE_NORMAL) {
      if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
          r.library_error == AMQP_STATUS_TIMEOUT) {
        if (pend && prefetch) {
          amqp_basic_ack(c, 1, last, 1);
          pend = 0;
        }
        continue;
      }
      if (r.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
          r.library_error == AMQP_STATUS_UNEXPECTED_STATE) {
        amqp_frame_t f;
        amqp_simple_wait_frame(c, &f);
        continue;
      }
      die("consume_message", r);
      break;
    }
    long long t;
    if (e.message.body.len >= 8) {
      memcpy(&t, e.message.body.bytes, 8);
      record(0, now_ns() - t);
    }
    last = e.delivery_tag;
    pend++;
    n++;
    atomic_fetch_add_explicit(&received, 1, memory_order_relaxed);
    amqp_destroy_envelope(&e);
    if (prefetch && pend >= acke) {
      amqp_basic_ack(c, 1, last, 1);
      pend = 0;
    }
  }
  if (pend && prefetch)
    amqp_basic_ack(c, 1, last, 1);
  amqp_connection_close(c, 200);
  amqp_destroy_connection(c);
  return 0;
}
/* Wait for `total` messages; give up after 30 s in which none came. */
static int run_total(pthread_t* tp, pthread_t* tc) {
  long long t0 = now_ns(), last = t0;
  atomic_store(&measuring, 1);
  for (long i = 0; i < C; i++)
    pthread_create(&tc[i], 0, con, (void*)i);
  for (long i = 0; i < P; i++)
    pthread_create(&tp[i], 0, pub, (void*)i);
  for (int i = 0; i < P; i++)
    pthread_join(tp[i], 0);
  double publishing = (now_ns() - t0) / 1e9;
  long before = -1;
  while (C && received < total && now_ns() - last < 30000000000LL) {
    if (received != before) {
      before = received;
      last = now_ns();
    }
    usleep(1000);
  }
  double receiving = (now_ns() - t0) / 1e9;
  atomic_store(&stop_con, 1);
  for (int i = 0; i < C; i++)
    pthread_join(tc[i], 0);
  if (C && received < total)
    atomic_fetch_add(&errors, 1);
  printf(
      "{\"confirmed_s\":%.0f,\"received_s\":%.0f,\"confirm_ms_p50\":%.2f,\"confirm_ms_p99\":%.2f,"
      "\"confirm_ms_max\":%.2f,\"sent\":%ld,\"confirmed\":%ld,\"nacked\":%ld,\"received\":%ld,\"errors\":%ld}\n",
      P ? confirmed / publishing : 0, C ? received / receiving : 0, percentile(1, .5), percentile(1, .99),
      percentile(1, 1), (long)sent, (long)confirmed, (long)nacked, (long)received, (long)errors);
  return errors ? 1 : 0;
}
int main(int n, char** v) {
  for (int i = 1; i + 1 < n; i += 2) {
    char *k = v[i], *x = v[i + 1];
    if (!strcmp(k, "--ports")) {
      char *s = strdup(x), *t;
      for (t = strtok(s, ","); t; t = strtok(0, ","))
        ports[nports++] = atoi(t);
    } else if (!strcmp(k, "--publishers"))
      P = atoi(x);
    else if (!strcmp(k, "--consumers"))
      C = atoi(x);
    else if (!strcmp(k, "--queues"))
      Q = atoi(x);
    else if (!strcmp(k, "--size"))
      size = atoi(x);
    else if (!strcmp(k, "--window"))
      W = atoi(x);
    else if (!strcmp(k, "--prefetch"))
      prefetch = atoi(x);
    else if (!strcmp(k, "--ack-every"))
      acke = atoi(x);
    else if (!strcmp(k, "--seconds"))
      dur = atoi(x);
    else if (!strcmp(k, "--warmup"))
      warm = atoi(x);
    else if (!strcmp(k, "--messages"))
      total = atol(x);
    else if (!strcmp(k, "--rate"))
      rate = atof(x);
    else if (!strcmp(k, "--type"))
      qtype = x;
    else if (!strcmp(k, "--prefix"))
      prefix = x;
    else if (!strcmp(k, "--declare"))
      declare = atoi(x);
    else {
      fprintf(stderr, "unknown %s\n", k);
      return 2;
    }
  }
  if (!nports) {
    ports[0] = 5672;
    nports = 1;
  }
  amqp_connection_state_t c = conn(0);
  if (!c)
    return 1;
  if (declare)
    for (int i = 0; i < Q; i++) {
      char q[64];
      qname(q, i);
      amqp_table_entry_t en[1];
      en[0].key = amqp_cstring_bytes("x-queue-type");
      en[0].value.kind = AMQP_FIELD_KIND_UTF8;
      en[0].value.value.bytes = amqp_cstring_bytes(qtype);
      amqp_table_t t = {1, en};
      amqp_queue_declare(c, 1, amqp_cstring_bytes(q), 0, durable, 0, 0, t);
      amqp_rpc_reply_t r = amqp_get_rpc_reply(c);
      if (r.reply_type != AMQP_RESPONSE_NORMAL) {
        die("declare", r);
        return 1;
      }
      amqp_queue_purge(c, 1, amqp_cstring_bytes(q));
      amqp_get_rpc_reply(c);
    }
  pthread_t tp[4096], tc[4096];
  if (total)
    return run_total(tp, tc);
  for (long i = 0; i < C; i++)
    pthread_create(&tc[i], 0, con, (void*)i);
  usleep(300000);
  for (long i = 0; i < P; i++)
    pthread_create(&tp[i], 0, pub, (void*)i);
  sleep(warm);
  atomic_store(&measuring, 1);
  long s0 = sent, f0 = confirmed, r0 = received;
  long long t0 = now_ns();
  long lr = r0, ls = s0;
  double minr = 1e18, mins = 1e18;
  for (int k = 0; k < dur; k++) {
    sleep(1);
    long r = received, s = sent;
    if (r - lr < minr)
      minr = r - lr;
    if (s - ls < mins)
      mins = s - ls;
    lr = r;
    ls = s;
  }
  double el = (now_ns() - t0) / 1e9;
  long s1 = sent, f1 = confirmed, r1 = received;
  atomic_store(&measuring, 0);
  atomic_store(&stop_pub, 1);
  for (int i = 0; i < P; i++)
    pthread_join(tp[i], 0);
  long long e = now_ns() + 5000000000LL;
  long want = W > 0 ? confirmed : sent;
  while (C && received < want && now_ns() < e)
    usleep(50000);
  atomic_store(&stop_con, 1);
  for (int i = 0; i < C; i++)
    pthread_join(tc[i], 0);
  printf(
      "{\"sent_s\":%.0f,\"confirmed_s\":%.0f,\"received_s\":%.0f,\"min_received_s\":%.0f,\"min_"
      "sent_s\":%.0f,\"e2e_ms_p50\":%.2f,\"e2e_ms_p99\":%.2f,\"confirm_ms_p50\":%.2f,\"confirm_ms_"
      "p99\":%.2f,\"sent\":%ld,\"confirmed\":%ld,\"nacked\":%ld,\"received\":%ld,\"errors\":%ld}\n",
      (s1 - s0) / el, (f1 - f0) / el, (r1 - r0) / el, minr, mins, percentile(0, .5), percentile(0, .99),
      percentile(1, .5), percentile(1, .99), (long)sent, (long)confirmed, (long)nacked, (long)received,
      (long)errors);
  return errors ? 1 : 0;
}
