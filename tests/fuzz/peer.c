/* SPDX-License-Identifier: Apache-2.0 */
#include "fuzz/peer.h"

#include "fuzz/world.h"

/* ---------------------------------------------------------------------- bytes */

void bytes_add(struct bytes *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		b->cap = 2 * (b->len + n);
		b->p = realloc(b->p, b->cap);
		CHECK(b->p);
	}
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
}

void bytes_cut(struct bytes *b, size_t n)
{
	CHECK(n <= b->len);
	b->len -= n;
	if (b->len)
		memmove(b->p, b->p + n, b->len);
}

void bytes_free(struct bytes *b)
{
	free(b->p);
	*b = (struct bytes){ .p = NULL };
}

/* -------------------------------------------------------------------- streams */

void peer_init(struct peer *p, struct world *w, bool client, unsigned number)
{
	memset(p, 0, sizeof(*p));
	p->world = w;
	p->client = client;
	p->number = number;
	p->initial = H2_DEFAULT_WINDOW;
	p->max_streams = UINT32_MAX;
	p->window = H2_DEFAULT_WINDOW;
	p->goaway = UINT32_MAX;
	p->next_id = 1;
	CHECK(!nghttp2_hd_inflate_new(&p->in_hpack) && !nghttp2_hd_inflate_new(&p->out_hpack));
}

void peer_free(struct peer *p)
{
	for (unsigned i = 0; i < p->n_streams; i++)
		free(p->streams[i]);
	free(p->streams);
	bytes_free(&p->in);
	bytes_free(&p->out);
	bytes_free(&p->in_block);
	bytes_free(&p->out_block);
	nghttp2_hd_inflate_del(p->in_hpack);
	nghttp2_hd_inflate_del(p->out_hpack);
}

struct half *peer_stream(const struct peer *p, uint32_t id)
{
	for (unsigned i = p->n_streams; i--;) {
		if (p->streams[i]->id == id)
			return p->streams[i];
	}
	return NULL;
}

static struct half *stream_open(struct peer *p, uint32_t id)
{
	struct half *s = calloc(1, sizeof(*s));

	p->streams = realloc(p->streams, (p->n_streams + 1) * sizeof(struct half *));
	CHECK(s && p->streams);
	s->id = id;
	p->streams[p->n_streams++] = s;
	return s;
}

bool half_open(const struct half *s)
{
	return !s->reset && !s->in_reset && !(s->ended && s->in_ended);
}

/* --------------------------------------------------------------- header blocks */

struct fields {
	uint32_t key;
	int status, grpc_status;
	bool health, path;
};

static int number(const nghttp2_nv *nv)
{
	int v = 0;

	if (!nv->valuelen || nv->valuelen > 3)
		return -1;
	for (size_t i = 0; i < nv->valuelen; i++) {
		if (nv->value[i] < '0' || nv->value[i] > '9')
			return -1;
		v = 10 * v + nv->value[i] - '0';
	}
	return v;
}

static bool is(const nghttp2_nv *nv, const char *name)
{
	return nv->namelen == strlen(name) && !memcmp(nv->name, name, nv->namelen);
}

static bool decode(nghttp2_hd_inflater *in, const struct bytes *block, struct fields *f)
{
	const uint8_t *p = block->p;
	size_t len = block->len;
	int flags;

	*f = (struct fields){ .status = -1, .grpc_status = -1 };
	do {
		nghttp2_nv nv;
		ssize_t n;

		flags = 0;
		n = nghttp2_hd_inflate_hd2(in, &nv, &flags, p, len, 1);
		if (n < 0)
			return false;
		if (n) {
			p += n;
			len -= (size_t)n;
		}
		if (!(flags & NGHTTP2_HD_INFLATE_EMIT))
			continue;
		if (is(&nv, ":status"))
			f->status = number(&nv);
		else if (is(&nv, "grpc-status"))
			f->grpc_status = number(&nv);
		else if (is(&nv, KEY_FIELD) && nv.valuelen == 4)
			memcpy(&f->key, nv.value, 4);
		else if (is(&nv, ":path")) {
			f->path = true;
			f->health = memmem(nv.value, nv.valuelen, "Health", 6);
		}
	} while (!(flags & NGHTTP2_HD_INFLATE_FINAL));
	nghttp2_hd_inflate_end_headers(in);
	return true;
}

/* Content of a DATA or HEADERS payload. False: its padding or length is wrong. */
static bool content_of(const struct h2_frame *f, const uint8_t *p, const uint8_t **ret_p,
		       size_t *ret_n)
{
	size_t n = f->length, pad = 0;

	if (f->flags & H2_FLAG_PADDED) {
		if (!n)
			return false;
		pad = *p++;
		n--;
	}
	if (f->type == H2_HEADERS && f->flags & H2_FLAG_PRIORITY) {
		if (n < 5)
			return false;
		p += 5;
		n -= 5;
	}
	if (pad > n)
		return false;
	*ret_p = p;
	*ret_n = n - pad;
	return true;
}

/* With FUZZ_TRACE in the environment: each frame that has been looked at. */
static void trace(const struct peer *p, const char *way, const struct h2_frame *f,
		  const uint8_t *pl)
{
	if (!getenv("FUZZ_TRACE"))
		return;
	fprintf(stderr, "%s %u %s %s stream %u flags 0x%x length %u",
		p->client ? "client" : "executor", p->number, way, h2_type_name(f->type), f->stream,
		f->flags, f->length);
	fprintf(stderr, " %08x\n", f->length < 4 ? 0 : get_be32(pl));
}

/* ----------------------------------------------------- in: what the peer has said */

static void in_settings(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	uint32_t initial = p->n_told ? p->told_initial[p->n_told - 1] : p->initial;
	uint32_t streams = p->n_told ? p->told_streams[p->n_told - 1] : p->max_streams;

	if (f->flags & H2_FLAG_ACK)
		return;
	for (uint32_t i = 0; i + 6 <= f->length; i += 6) {
		uint32_t v = get_be32(pl + i + 2);

		if (get_be16(pl + i) == H2_SETTINGS_INITIAL_WINDOW_SIZE && v <= H2_MAX_WINDOW)
			initial = v;
		else if (get_be16(pl + i) == H2_SETTINGS_MAX_CONCURRENT_STREAMS)
			streams = v;
	}
	p->said_settings = true;
	if (p->n_told == PEER_SETTINGS_MAX) {
		p->in_stop = p->out_stop = true; /* beyond what is remembered */
		return;
	}
	p->told_initial[p->n_told] = initial;
	p->told_streams[p->n_told++] = streams;
}

static void in_block(struct peer *p)
{
	struct half *s = peer_stream(p, p->in_block_id);
	struct fields f;

	if (!decode(p->in_hpack, &p->in_block, &f)) {
		p->in_stop = true;
		return;
	}
	if (p->client && p->in_block_id > p->last_in) {
		p->last_in = p->in_block_id;
		s = stream_open(p, p->in_block_id);
		s->health = f.health;
		s->call = f.key ? world_call(p->world, f.key) : NULL;
		if (s->call) {
			s->call->shared = s->call->claimed;
			s->call->claimed = true;
		}
	}
	if (!s)
		return;
	if (p->client) {
		s->in_ended |= p->in_block_flags & H2_FLAG_END_STREAM;
		return;
	}
	if (s->in_ended || s->in_reset)
		return;
	if (f.status >= 200)
		s->in_head = true;
	if (p->in_block_flags & H2_FLAG_END_STREAM) {
		s->in_ended = true;
		if (s->call && s->call->attempt == s)
			s->call->ok = f.grpc_status == 0;
	}
}

static void in_data(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	const uint8_t *c;
	size_t n;

	if (!s || s->in_ended || s->in_reset)
		return;
	s->used += f->length;
	if (!content_of(f, pl, &c, &n)) {
		/* Ends the connection, but an executor's when nobody waits for the stream. */
		p->in_stop = true;
		p->out_stop |= !p->client;
		/* What else it answers is then forwarded, and is not followed here. */
		for (unsigned i = 0; !p->client && i < p->n_streams; i++) {
			if (p->streams[i]->call)
				p->streams[i]->call->shared = true;
		}
		return;
	}
	if (s->call && p->client)
		bytes_add(&s->call->request, c, n);
	else if (s->call && s->call->attempt == s)
		bytes_add(&s->call->content, c, n);
	s->in_ended = f->flags & H2_FLAG_END_STREAM;
}

static void in_update(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	uint32_t inc = get_be32(pl) & H2_MAX_WINDOW;

	if (!f->stream)
		p->window += inc;
	else if (s)
		s->window += inc;
}

static void in_frame(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	const uint8_t *c;
	size_t n;

	trace(p, "->", f, pl);

	switch (f->type) {
	case H2_DATA:
		in_data(p, f, pl);
		break;
	case H2_HEADERS:
		if (!content_of(f, pl, &c, &n)) {
			p->in_stop = true;
			return;
		}
		p->in_block.len = 0;
		bytes_add(&p->in_block, c, n);
		p->in_block_id = f->stream;
		p->in_block_flags = f->flags;
		p->priority_seen |= (f->flags & H2_FLAG_PRIORITY) != 0;
		if (f->flags & H2_FLAG_END_HEADERS)
			in_block(p);
		break;
	case H2_CONTINUATION:
		bytes_add(&p->in_block, pl, f->length);
		if (f->flags & H2_FLAG_END_HEADERS)
			in_block(p);
		break;
	case H2_PRIORITY:
		p->priority_seen = true;
		break;
	case H2_RST_STREAM:
		if (s)
			s->in_reset = true;
		break;
	case H2_SETTINGS:
		in_settings(p, f, pl);
		break;
	case H2_PING:
		if (f->length != 8 || f->flags & H2_FLAG_ACK)
			break;
		p->pings_lost |= p->n_pings == PEER_PINGS_MAX;
		if (!p->pings_lost)
			memcpy(p->pings[p->n_pings++], pl, 8);
		break;
	case H2_WINDOW_UPDATE:
		if (f->length == 4)
			in_update(p, f, pl);
		break;
	default:
		break;
	}
}

void peer_in(struct peer *p, const uint8_t *data, size_t n)
{
	size_t off = 0;

	if (p->in_stop)
		return;
	bytes_add(&p->in, data, n);
	if (p->client && !p->in_preface) {
		p->in_stop = memcmp(p->in.p, H2_PREFACE, min_u64(p->in.len, H2_PREFACE_LEN));
		if (p->in_stop || p->in.len < H2_PREFACE_LEN)
			return;
		p->in_preface = true;
		off = H2_PREFACE_LEN;
	}
	while (!p->in_stop && p->in.len - off >= H2_HEADER_LEN) {
		struct h2_frame f = h2_frame_get(p->in.p + off);

		if (f.length > H2_DEFAULT_FRAME_SIZE) {
			p->in_stop = true;
			break;
		}
		if (p->in.len - off < H2_HEADER_LEN + f.length)
			break;
		in_frame(p, &f, p->in.p + off + H2_HEADER_LEN);
		off += H2_HEADER_LEN + f.length;
	}
	bytes_cut(&p->in, off);
}

/* ------------------------------------------- out: what the session says, judged */

/* The largest INITIAL_WINDOW_SIZE that may be in force: a decrease binds from its ACK on. */
static int64_t initial_window(const struct peer *p)
{
	uint32_t most = p->initial;

	for (unsigned i = 0; i < p->n_told; i++)
		most = p->told_initial[i] > most ? p->told_initial[i] : most;
	return most;
}

static void out_settings(struct peer *p, const struct h2_frame *f)
{
	CHECK(!f->stream && f->length % 6 == 0);
	if (!(f->flags & H2_FLAG_ACK)) {
		CHECK(!p->settings_out);
		p->settings_out = true;
		return;
	}
	CHECK(!f->length && p->n_told);
	p->initial = p->told_initial[0];
	p->max_streams = p->told_streams[0];
	p->n_told--;
	memmove(p->told_initial, p->told_initial + 1, p->n_told * sizeof(p->told_initial[0]));
	memmove(p->told_streams, p->told_streams + 1, p->n_told * sizeof(p->told_streams[0]));
}

static unsigned open_streams(const struct peer *p)
{
	unsigned n = 0;

	for (unsigned i = 0; i < p->n_streams; i++)
		n += half_open(p->streams[i]);
	return n;
}

/* A request to an executor. */
static void out_request(struct peer *p, const struct fields *f)
{
	uint32_t id = p->out_block_id;
	struct half *s;
	struct call *c;

	CHECK(id & 1 && id > p->last_out && f->path);
	CHECK(p->said_settings || !open_streams(p)); /* one may go ahead of its SETTINGS */
	CHECK(open_streams(p) < p->max_streams);
	p->last_out = id;
	s = stream_open(p, id);
	s->head = true;
	s->ended = p->out_block_flags & H2_FLAG_END_STREAM;
	c = s->call = f->key ? world_call(p->world, f->key) : NULL;
	if (!c)
		return;
	/* What waited for the socket may be an attempt that is over, and not the last one. */
	c->shared |= p->throttled && c->attempt;
	CHECK(!c->got || c->shared); /* once the client has a byte there is no second attempt */
	c->attempt = s;
	c->content.len = 0;
	c->forwarded = 0;
	c->ok = false;
}

/* A response to a client. */
static void out_response(struct peer *p, struct half *s, const struct fields *f)
{
	bool end = p->out_block_flags & H2_FLAG_END_STREAM;
	const struct call *c = s->call;

	CHECK(!s->ended && !s->reset);
	if (!s->head) {
		CHECK(f->status >= 100 && f->status != 101);
		if (f->status < 200) {
			CHECK(!end);
			return;
		}
		s->head = true;
	} else {
		CHECK(end && f->status < 0);
	}
	s->ended = end;
	if (!end)
		return;
	CHECK(f->grpc_status >= 0 || f->status > 200);
	if (!f->grpc_status && !s->health && c && !c->shared)
		CHECK(c->ok && c->got == c->content.len);
}

static void out_block(struct peer *p)
{
	struct half *s = peer_stream(p, p->out_block_id);
	struct fields f;

	CHECK(decode(p->out_hpack, &p->out_block, &f));
	if (p->client) {
		CHECK(s);
		out_response(p, s, &f);
	} else {
		out_request(p, &f);
	}
	p->out_block_id = 0;
}

static void out_data(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	struct call *c;
	const uint8_t *content;
	size_t n;

	CHECK(s && s->head && !s->ended && !s->reset);
	CHECK(content_of(f, pl, &content, &n));
	s->window -= f->length;
	p->window -= f->length;
	CHECK(!f->length || (p->window >= 0 && initial_window(p) + s->window >= 0));
	p->data_out += f->length;
	s->ended = f->flags & H2_FLAG_END_STREAM;
	c = s->call;
	if (p->client) {
		CHECK(!s->ended); /* gRPC ends with trailers */
		if (!c || c->shared || s->health)
			return;
		CHECK(c->got + n <= c->content.len);
		CHECK(!n || !memcmp(c->content.p + c->got, content, n));
		c->got += n;
	} else if (c && !c->shared && c->attempt == s) {
		CHECK(c->forwarded + n <= c->request.len);
		CHECK(!n || !memcmp(c->request.p + c->forwarded, content, n));
		c->forwarded += n;
		CHECK(!s->ended || c->forwarded == c->request.len);
	}
}

static void out_update(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	uint32_t inc = get_be32(pl);

	CHECK(f->length == 4 && inc && inc <= H2_MAX_WINDOW);
	if (!f->stream)
		return;
	CHECK(!p->client && s && !s->reset);
	s->granted += inc;
	CHECK(s->granted - s->used <= H2_MAX_WINDOW);
}

static void out_rst(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	struct half *s = peer_stream(p, f->stream);
	uint32_t code = get_be32(pl);

	CHECK(f->length == 4 && f->stream);
	if (!s) {
		/* A stream error of a stream that never came to be. */
		CHECK(p->client && (f->stream <= p->last_in || p->priority_seen));
		return;
	}
	/* Some clients read these two as success. */
	if (p->client)
		CHECK(s->ended || (code != H2_NO_ERROR && code != H2_CANCEL));
	s->reset = true;
}

static void out_ping(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	CHECK(f->length == 8 && !f->stream);
	if (!(f->flags & H2_FLAG_ACK) || p->pings_lost)
		return;
	CHECK(p->n_pings && !memcmp(p->pings[0], pl, 8));
	p->n_pings--;
	memmove(p->pings[0], p->pings[1], 8 * p->n_pings);
}

static void out_goaway(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	uint32_t last = get_be32(pl);

	CHECK(f->length >= 8 && !f->stream && last <= p->goaway);
	p->goaway = last;
}

static void out_frame(struct peer *p, const struct h2_frame *f, const uint8_t *pl)
{
	const uint8_t *c;
	size_t n;

	trace(p, "<-", f, pl);

	CHECK(f->length <= H2_DEFAULT_FRAME_SIZE);
	CHECK(p->settings_out || f->type == H2_SETTINGS);
	CHECK(!p->out_block_id || (f->type == H2_CONTINUATION && f->stream == p->out_block_id));
	switch (f->type) {
	case H2_DATA:
		out_data(p, f, pl);
		break;
	case H2_HEADERS:
		CHECK(f->stream && content_of(f, pl, &c, &n));
		p->out_block.len = 0;
		bytes_add(&p->out_block, c, n);
		p->out_block_id = f->stream;
		p->out_block_flags = f->flags;
		break;
	case H2_CONTINUATION:
		CHECK(p->out_block_id);
		bytes_add(&p->out_block, pl, f->length);
		break;
	case H2_SETTINGS:
		out_settings(p, f);
		break;
	case H2_RST_STREAM:
		out_rst(p, f, pl);
		break;
	case H2_PING:
		out_ping(p, f, pl);
		break;
	case H2_GOAWAY:
		out_goaway(p, f, pl);
		break;
	case H2_WINDOW_UPDATE:
		out_update(p, f, pl);
		break;
	default:
		CHECK(!"a frame that must not cross the proxy");
	}
	if ((f->type == H2_HEADERS || f->type == H2_CONTINUATION) && f->flags & H2_FLAG_END_HEADERS)
		out_block(p);
}

void peer_out(struct peer *p, const uint8_t *data, size_t n)
{
	size_t off = 0;

	if (p->out_stop)
		return;
	bytes_add(&p->out, data, n);
	if (p->client && !p->in_preface && p->in_stop) {
		/*
		 * Whoever does not begin with the preface gets HTTP/1.1 or nothing, behind what
		 * may have been queued before it said anything (a drain).
		 */
		CHECK(p->settings_out || p->out.len < 12 || p->out.p[3] == H2_SETTINGS ||
		      !memcmp(p->out.p, "HTTP/1.1 505", 12));
		p->out_stop = true;
		return;
	}
	if (!p->client && !p->out_preface) {
		if (p->out.len < H2_PREFACE_LEN)
			return;
		CHECK(!memcmp(p->out.p, H2_PREFACE, H2_PREFACE_LEN));
		p->out_preface = true;
		off = H2_PREFACE_LEN;
	}
	while (!p->out_stop && p->out.len - off >= H2_HEADER_LEN) {
		struct h2_frame f = h2_frame_get(p->out.p + off);

		CHECK(f.length <= H2_DEFAULT_FRAME_SIZE);
		if (p->out.len - off < H2_HEADER_LEN + f.length)
			break;
		out_frame(p, &f, p->out.p + off + H2_HEADER_LEN);
		off += H2_HEADER_LEN + f.length;
	}
	bytes_cut(&p->out, off);
}
