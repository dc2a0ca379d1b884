package membership

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// A refusal is why a stream of gossip is turned away at the door, before
// memberlist reads it. The other end is told in the clear, because the two may
// have no key in common; it is a word for a log, and nothing else hangs on it:
//
//	┌0xE7┬"RKV"┬reason┬our cluster's name┐
//	└1   ┴3    ┴1     ┴1+n               ┘
//
// The name is empty but for refuseLabel and an end that we know (transport.known).
// No message of memberlist begins with 0xE7.
type refusal uint8

const (
	refuseLabel   refusal = 1 // of a cluster with another name
	refuseAddress refusal = 2 // from an address that may not
	refuseBusy    refusal = 3 // too many streams; said in our own log only
)

const refusalMark = 0xE7

func (r refusal) append(dst []byte, label string) []byte {
	dst = append(dst, refusalMark, 'R', 'K', 'V', byte(r))
	return appendText(dst, label)
}

// readRefusal reads what follows the mark and returns it as an error.
func readRefusal(conn net.Conn) error {
	var head [5]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil || string(head[:3]) != "RKV" {
		return fmt.Errorf("%w: a refusal that does not parse", errMessage)
	}
	label := make([]byte, head[4])
	if _, err := io.ReadFull(conn, label); err != nil {
		return fmt.Errorf("%w: a refusal that does not parse", errMessage)
	}
	switch refusal(head[3]) {
	case refuseLabel:
		if len(label) == 0 {
			return fmt.Errorf("%w: what it is there stands in that node's log", ErrWrongCluster)
		}
		return fmt.Errorf("%w: it is %q there", ErrWrongCluster, clean(string(label)))
	case refuseAddress:
		return ErrNotAllowed
	case refuseBusy:
		return ErrBusy
	}
	return fmt.Errorf("%w: refused for reason %d", errMessage, head[3])
}

// clean makes a text from outside fit for a log: visible ASCII, 80 at most.
func clean(s string) string {
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

// whyNot finds, in an error of memberlist's, what we can name. memberlist
// turns errors into text on the way.
func whyNot(err error) error {
	text := err.Error()
	if _, tail, ok := strings.Cut(text, "* failed to join "); ok { // a list of one
		_, text, _ = strings.Cut(strings.TrimSpace(tail), ": ")
		err = errors.New(text)
	}
	for _, e := range []error{ErrWrongCluster, ErrNotAllowed, ErrBusy} {
		if strings.Contains(text, e.Error()) {
			_, more, _ := strings.Cut(text, e.Error())
			return fmt.Errorf("%w%s", e, clean(more))
		}
	}
	if wrongKey(text) {
		return fmt.Errorf("%w (%s)", ErrWrongKey, clean(text))
	}
	return err
}

// wrongKey knows the words in which memberlist says that the two ends do not
// encrypt alike.
func wrongKey(text string) bool {
	for _, words := range [...]string{
		"no installed keys could decrypt",
		"encryption is configured but remote state is not encrypted",
		"remote state is encrypted and encryption is not configured",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}
