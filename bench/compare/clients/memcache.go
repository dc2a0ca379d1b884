package clients

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmakv/rdmakv/internal/load"
)

// A Memcache is one connection to a memcached. It speaks the meta commands, the
// shortest of its protocols. Batches are pipelined.
type Memcache struct {
	w *wire
	p patience
}

var _ load.BatchStore = (*Memcache)(nil)

// DialMemcache connects over "tcp" or "unix".
func DialMemcache(ctx context.Context, network, addr string) (*Memcache, error) {
	w, err := dialWire(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &Memcache{w: w}, nil
}

// Close ends the connection.
func (m *Memcache) Close() error { return m.w.conn.Close() }

// Get is mg.
func (m *Memcache) Get(_ context.Context, key, dst []byte) ([]byte, load.Path, error) {
	if err := m.p.renew(m.w); err != nil {
		return nil, load.PathNone, err
	}
	m.w.out = AppendMemcacheGet(m.w.out, key)
	if err := m.w.send(); err != nil {
		return nil, load.PathNone, err
	}
	value, err := m.hit(dst)
	return value, load.PathNone, err
}

// Put is ms.
func (m *Memcache) Put(_ context.Context, key, value []byte) error {
	if err := m.p.renew(m.w); err != nil {
		return err
	}
	m.w.out = AppendMemcacheSet(m.w.out, key, value)
	if err := m.w.send(); err != nil {
		return err
	}
	return m.stored()
}

// GetMany is as many mg in one pipeline.
func (m *Memcache) GetMany(_ context.Context, keys, values [][]byte, errs []error) {
	err := m.p.renew(m.w)
	for _, key := range keys {
		m.w.out = AppendMemcacheGet(m.w.out, key)
	}
	if err == nil {
		err = m.w.send()
	}
	for i := range keys {
		if errs[i] = err; err == nil {
			var value []byte
			if value, errs[i] = m.hit(values[i]); value != nil {
				values[i] = value
			}
		}
	}
}

// PutMany is as many ms in one pipeline.
func (m *Memcache) PutMany(_ context.Context, keys, values [][]byte, errs []error) {
	err := m.p.renew(m.w)
	for i, key := range keys {
		m.w.out = AppendMemcacheSet(m.w.out, key, values[i])
	}
	if err == nil {
		err = m.w.send()
	}
	for i := range keys {
		if errs[i] = err; err == nil {
			errs[i] = m.stored()
		}
	}
}

// Delete is not measured here.
func (m *Memcache) Delete(context.Context, []byte) error { return load.ErrUnsupported }

// Scan does not exist.
func (m *Memcache) Scan(context.Context, []byte, int) (int, error) { return 0, load.ErrUnsupported }

// Stat returns a number of "stats", such as bytes or evictions.
func (m *Memcache) Stat(name string) (int64, error) {
	m.w.out = append(m.w.out, "stats\r\n"...)
	if err := m.w.send(); err != nil {
		return 0, err
	}
	var found []byte
	for {
		line, err := m.w.line()
		if err != nil {
			return 0, err
		}
		if string(line) == "END" {
			break
		}
		if value, ok := bytes.CutPrefix(line, []byte("STAT "+name+" ")); ok {
			found = bytes.Clone(value)
		}
	}
	if found == nil {
		return 0, fmt.Errorf("%w: no %s in stats", ErrProtocol, name)
	}
	return strconv.ParseInt(string(found), 10, 64)
}

// hit reads "VA N", N bytes.
func (m *Memcache) hit(dst []byte) ([]byte, error) {
	line, err := m.w.line()
	if err != nil {
		return nil, err
	}
	if string(line) == "EN" {
		return nil, load.ErrNotFound
	}
	size, ok := bytes.CutPrefix(line, []byte("VA "))
	if !ok {
		return nil, fmt.Errorf("%w: %.80q", ErrProtocol, line)
	}
	n, err := number(bytes.TrimRight(size, " "))
	if err != nil {
		return nil, err
	}
	return m.w.value(dst, n)
}

// stored reads "HD".
func (m *Memcache) stored() error {
	line, err := m.w.line()
	if err == nil && string(bytes.TrimRight(line, " ")) != "HD" {
		err = fmt.Errorf("%w: %.80q", ErrProtocol, line)
	}
	return err
}

// AppendMemcacheGet appends the request for a key's value.
func AppendMemcacheGet(dst, key []byte) []byte {
	return append(append(append(dst, "mg "...), key...), " v\r\n"...)
}

// AppendMemcacheSet appends the request that stores a value.
func AppendMemcacheSet(dst, key, value []byte) []byte {
	dst = append(append(append(dst, "ms "...), key...), ' ')
	dst = append(strconv.AppendInt(dst, int64(len(value)), 10), "\r\n"...)
	return append(append(dst, value...), "\r\n"...)
}

// infoNumber finds "name:N" among lines.
func infoNumber(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return strconv.ParseInt(v, 10, 64)
		}
	}
	return 0, fmt.Errorf("%w: no %s in INFO", ErrProtocol, name)
}
