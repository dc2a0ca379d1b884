package membership

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// A refusal is why a stream of gossip is turned away before memberlist reads it. The
// other end is told in the clear, because the two may have no key in common; the
// refusal goes to a log, and nothing else depends on it:
//
//	┌0xE7┬"RKV"┬reason┬our cluster's name┐
//	└1   ┴3    ┴1     ┴1+n               ┘
//
// The name is empty, except with refuseLabel and an end that we know
// (transport.known). No message of memberlist begins with 0xE7.
//
// A program that is no member itself, such as kvclient doctor, can ask whether this
// is a node that would gossip with it: it sends the same with reason 0 and the name
// of its own cluster. The answer has reason 0 and no name, or is a refusal.
type refusal uint8

const (
	accepted      refusal = 0 // in a question; in the answer: not refused
	refuseLabel   refusal = 1 // of a cluster with another name
	refuseAddress refusal = 2 // from an address that may not
	refuseBusy    refusal = 3 // too many streams; said in our own log only
)

const refusalMark = 0xE7

func (r refusal) append(dst []byte, label string) []byte {
	dst = append(dst, refusalMark, 'R', 'K', 'V', byte(r))
	return appendText(dst, label)
}

// readQuestion reads a stream that has no label. ok is false if it ends without a
// byte. asked says that it is a question, of a cluster of that name.
func readQuestion(conn io.Reader) (name string, asked, ok bool) {
	var head [6]byte
	if n, _ := io.ReadFull(conn, head[:1]); n == 0 {
		return "", false, false
	}
	if head[0] != refusalMark {
		return "", false, true
	}
	if _, err := io.ReadFull(conn, head[1:]); err != nil || string(head[1:5]) != "RKV\x00" {
		return "", false, true
	}
	label := make([]byte, head[5])
	if _, err := io.ReadFull(conn, label); err != nil {
		return "", false, true
	}
	return string(label), true, true
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

// clean makes a text from outside fit for a log: visible ASCII, at most 80
// characters.
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

// whyNot finds the cause in an error of memberlist, if we have a name for it.
// memberlist turns errors into text on the way.
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

// wrongKey recognises the words in which memberlist says that the two ends do not
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
