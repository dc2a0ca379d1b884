package clients

import (
	"context"
	"fmt"
	"strconv"

	"github.com/rdmakv/rdmakv/internal/load"
)

// A Redis is one connection to a redis-server, as a caller of the load generator
// has it. Batches are pipelined: all requests in one write, then all answers.
type Redis struct {
	w    *wire
	p    patience
	acks int // replicas that puts wait for
}

var _ load.BatchStore = (*Redis)(nil)

// DialRedis connects over "tcp" or "unix".
func DialRedis(ctx context.Context, network, addr string) (*Redis, error) {
	w, err := dialWire(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &Redis{w: w}, nil
}

// Close ends the connection.
func (r *Redis) Close() error { return r.w.conn.Close() }

// Get is GET.
func (r *Redis) Get(_ context.Context, key, dst []byte) ([]byte, load.Path, error) {
	if err := r.p.renew(r.w); err != nil {
		return nil, load.PathNone, err
	}
	r.w.out = AppendRedisGet(r.w.out, key)
	if err := r.w.send(); err != nil {
		return nil, load.PathNone, err
	}
	value, err := r.bulk(dst)
	return value, load.PathNone, err
}

// Put is SET, and WAIT where puts wait for replicas.
func (r *Redis) Put(_ context.Context, key, value []byte) error {
	if err := r.p.renew(r.w); err != nil {
		return err
	}
	r.w.out = AppendRedisSet(r.w.out, key, value)
	if r.acks > 0 {
		r.w.out = appendWait(r.w.out, r.acks)
	}
	if err := r.w.send(); err != nil {
		return err
	}
	err := r.ok()
	if r.acks > 0 {
		if late := r.waited(); err == nil {
			err = late
		}
	}
	return err
}

// GetMany is as many GETs in one pipeline.
func (r *Redis) GetMany(_ context.Context, keys, values [][]byte, errs []error) {
	err := r.p.renew(r.w)
	for _, key := range keys {
		r.w.out = AppendRedisGet(r.w.out, key)
	}
	if err == nil {
		err = r.w.send()
	}
	for i := range keys {
		if errs[i] = err; err == nil {
			var value []byte
			if value, errs[i] = r.bulk(values[i]); value != nil {
				values[i] = value
			}
		}
	}
}

// PutMany is as many SETs in one pipeline, and one WAIT behind them where puts wait.
func (r *Redis) PutMany(_ context.Context, keys, values [][]byte, errs []error) {
	err := r.p.renew(r.w)
	for i, key := range keys {
		r.w.out = AppendRedisSet(r.w.out, key, values[i])
	}
	if r.acks > 0 {
		r.w.out = appendWait(r.w.out, r.acks)
	}
	if err == nil {
		err = r.w.send()
	}
	for i := range keys {
		if errs[i] = err; err == nil {
			errs[i] = r.ok()
		}
	}
	if r.acks == 0 || err != nil {
		return
	}
	if err := r.waited(); err != nil { // none of them is known to be at a replica
		for i := range errs {
			errs[i] = err
		}
	}
}

// Delete and Scan are not measured here.
func (r *Redis) Delete(context.Context, []byte) error { return load.ErrUnsupported }

// Scan is not measured here.
func (r *Redis) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }

// Info returns a number of "INFO memory", such as used_memory.
func (r *Redis) Info(section, name string) (int64, error) {
	r.w.out = appendBulk(appendBulk(append(r.w.out, "*2\r\n"...), "INFO"), section)
	if err := r.w.send(); err != nil {
		return 0, err
	}
	text, err := r.bulk(nil)
	if err != nil {
		return 0, err
	}
	return infoNumber(string(text), name)
}

// bulk reads "$N", N bytes.
func (r *Redis) bulk(dst []byte) ([]byte, error) {
	line, err := r.w.line()
	if err != nil {
		return nil, err
	}
	switch {
	case len(line) == 3 && string(line) == "$-1":
		return nil, load.ErrNotFound
	case len(line) < 2 || line[0] != '$':
		return nil, fmt.Errorf("%w: %.80q", ErrProtocol, line)
	}
	n, err := number(line[1:])
	if err != nil {
		return nil, err
	}
	return r.w.value(dst, n)
}

// ok reads "+OK".
func (r *Redis) ok() error {
	line, err := r.w.line()
	if err == nil && string(line) != "+OK" {
		err = fmt.Errorf("%w: %.80q", ErrProtocol, line)
	}
	return err
}

// AppendRedisGet appends the request "GET key".
func AppendRedisGet(dst, key []byte) []byte {
	return appendBulk(append(dst, "*2\r\n$3\r\nGET\r\n"...), key)
}

// AppendRedisSet appends the request "SET key value".
func AppendRedisSet(dst, key, value []byte) []byte {
	return appendBulk(appendBulk(append(dst, "*3\r\n$3\r\nSET\r\n"...), key), value)
}

func appendBulk[T []byte | string](dst []byte, b T) []byte {
	dst = strconv.AppendInt(append(dst, '$'), int64(len(b)), 10)
	dst = append(append(dst, "\r\n"...), b...)
	return append(dst, "\r\n"...)
}
