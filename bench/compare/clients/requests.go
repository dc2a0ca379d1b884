package clients

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Requests are ready-made requests in a file, for the client in C: all have one
// length, and so have their answers.
type Requests struct {
	File            string
	Request, Answer int    // bytes, of a batch
	First           string // what answers begin with
	Batch           int    // operations in a request
}

// A Dialect is the protocol of a peer, as far as requests of one length go.
type Dialect struct {
	Name string
	get  func(dst, key []byte) []byte
	set  func(dst, key, value []byte) []byte
	// Answers to a get that hits, and to a set.
	hit    func(value int) int
	stored string
	first  string // of a hit
	// Of one request for many keys: what stands before and behind them, and before
	// and behind the hits. Nil where each key has a request.
	around func(batch int) (head, tail, answerHead, answerTail string)
}

// RedisDialect and MemcacheDialect are the peers' protocols.
func RedisDialect() Dialect {
	return Dialect{Name: "redis", get: AppendRedisGet, set: AppendRedisSet,
		hit: func(n int) int { return len("$\r\n\r\n") + len(strconv.Itoa(n)) + n }, stored: "+OK\r\n", first: "$"}
}

// MemcacheDialect is that of the meta commands.
func MemcacheDialect() Dialect {
	return Dialect{Name: "memcached", get: AppendMemcacheGet, set: AppendMemcacheSet,
		hit: func(n int) int { return len("VA \r\n\r\n") + len(strconv.Itoa(n)) + n }, stored: "HD\r\n", first: "V"}
}

// RedisMGet is Redis' MGET: one request for all keys of a batch.
func RedisMGet() Dialect {
	return Dialect{Name: "redis-mget",
		get: func(dst, key []byte) []byte { return appendBulk(dst, key) },
		hit: func(n int) int { return len("$\r\n\r\n") + len(strconv.Itoa(n)) + n }, first: "*",
		around: func(batch int) (head, tail, answerHead, answerTail string) {
			return fmt.Sprintf("*%d\r\n$4\r\nMGET\r\n", batch+1), "", fmt.Sprintf("*%d\r\n", batch), ""
		}}
}

// MemcacheMultiGet is memcached's "get" of many keys, which have so many bytes.
func MemcacheMultiGet(key int) Dialect {
	return Dialect{Name: "memcached-get",
		get: func(dst, key []byte) []byte { return append(append(dst, ' '), key...) },
		hit: func(n int) int { return len("VALUE  0 \r\n\r\n") + key + len(strconv.Itoa(n)) + n }, first: "V",
		around: func(int) (head, tail, answerHead, answerTail string) { return "get", "\r\n", "", "END\r\n" }}
}

// Gets writes requests for keys with values of so many bytes, batch of them
// together. Keys that do not fill a batch are not asked for.
func (d Dialect) Gets(dir string, keys [][]byte, value, batch int) (*Requests, error) {
	return d.write(dir, "get", keys, batch, d.hit(value), d.first, d.get)
}

// Sets writes requests that store values of so many bytes.
func (d Dialect) Sets(dir string, keys [][]byte, value, batch int) (*Requests, error) {
	v := make([]byte, value)
	for i := range v {
		v[i] = byte('a' + i%26)
	}
	return d.write(dir, "set", keys, batch, len(d.stored), d.stored[:1], func(dst, key []byte) []byte { return d.set(dst, key, v) })
}

// write writes requests for keys into a file of dir, batch of them together. add
// appends one request; answer is the length of one answer, which begins with first.
func (d Dialect) write(dir, kind string, keys [][]byte, batch, answer int, first string, add func(dst, key []byte) []byte) (*Requests, error) {
	f, err := os.CreateTemp(dir, d.Name+"-"+kind+"-")
	if err != nil {
		return nil, err
	}
	r := &Requests{File: filepath.Clean(f.Name()), Answer: answer * batch, First: first, Batch: batch}
	var head, tail string
	if d.around != nil {
		var before, behind string
		head, tail, before, behind = d.around(batch)
		r.Answer += len(before) + len(behind)
	}
	w := bufio.NewWriter(f)
	var one []byte
	for len(keys) >= batch {
		one = append(one[:0], head...)
		for _, key := range keys[:batch] {
			one = add(one, key)
		}
		one = append(one, tail...)
		keys = keys[batch:]
		if r.Request == 0 {
			r.Request = len(one)
		}
		if len(one) != r.Request {
			f.Close()
			return nil, fmt.Errorf("a request of %d bytes among ones of %d: keys must be of one length", len(one), r.Request)
		}
		if _, err := w.Write(one); err != nil {
			f.Close()
			return nil, err
		}
	}
	if r.Request == 0 {
		f.Close()
		return nil, fmt.Errorf("%d keys are no batch of %d", len(keys), batch)
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return nil, err
	}
	return r, f.Close()
}
