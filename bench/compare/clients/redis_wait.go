package clients

import (
	"context"
	"fmt"
	"strconv"
)

// A Redis with replicas answers a SET when its own log has it. WAIT N 0 behind the SETs of a
// connection is answered when N replicas have taken them over in their memory; whether they
// are on the disks of these, it does not tell. Both go in one write, and a put is done when
// both are answered.

// DialRedisWait is DialRedis for a caller whose puts wait for so many replicas.
func DialRedisWait(ctx context.Context, network, addr string, acks int) (*Redis, error) {
	r, err := DialRedis(ctx, network, addr)
	if err == nil {
		r.acks = acks
	}
	return r, err
}

// appendWait appends the request "WAIT acks 0", which has no limit of time.
func appendWait(dst []byte, acks int) []byte {
	return append(appendBulk(append(dst, "*3\r\n$4\r\nWAIT\r\n"...), strconv.Itoa(acks)), "$1\r\n0\r\n"...)
}

// waited reads ":N", and fails if N is below what was waited for.
func (r *Redis) waited() error {
	line, err := r.w.line()
	if err != nil {
		return err
	}
	if len(line) < 2 || line[0] != ':' {
		return fmt.Errorf("%w to WAIT: %.80q", ErrProtocol, line)
	}
	n, err := number(line[1:])
	if err == nil && n < r.acks {
		err = fmt.Errorf("%w: WAIT %d ended with %d", ErrProtocol, r.acks, n)
	}
	return err
}

// RedisWait is Redis' protocol with one WAIT 1 0 behind the SETs of a batch. It has no gets.
// The number that answers it has one digit, whichever it is.
func RedisWait() Dialect {
	d := RedisDialect()
	d.Name = "redis-wait"
	d.around = func(int) (head, tail, answerHead, answerTail string) {
		return "", string(appendWait(nil, 1)), "", ":1\r\n"
	}
	return d
}
