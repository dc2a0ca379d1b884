package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdmakv/rdmakv/client/internal/base"
	"github.com/rdmakv/rdmakv/internal/wire"
)

// DocumentTries bounds how often a document is asked for anew, because the server has
// forgotten it before its end was read.
const DocumentTries = 10

// Document asks the server for a document and returns the whole of it, which is at most
// limit bytes. The argument goes there in parts, if need be, and the answer comes in parts.
// What changes something at the server and may have been done all the same fails with
// ErrOutcomeUnknown.
func (s *Session) Document(p *base.Limit, kind wire.DocumentKind, argument []byte, limit int) ([]byte, error) {
	changes := kind.Changes(argument)
	for range DocumentTries {
		text, err := readDocument(s, p, kind, argument, limit)
		switch {
		case !errors.Is(err, errForgotten):
			return text, unheard(err, changes)
		case changes: // it was done, and is not to be done again
			return nil, base.Because(base.ErrOutcomeUnknown, err)
		}
	}
	return nil, fmt.Errorf("%w: the server forgets what it was asked for before it is read", base.ErrUnavailable)
}

// errForgotten: the server does not know the document any more of which a part was read.
// It keeps as many as a client reads side by side.
var errForgotten = errors.New("the server has forgotten the answer before all of it was read")

func readDocument(s *Session, p *base.Limit, kind wire.DocumentKind, argument []byte, limit int) ([]byte, error) {
	var text []byte
	room := wire.DocumentRoom(s.RequestSize())
	sent := min(room, len(argument)) // with the message that is next
	m := wire.Document{Kind: kind, Total: uint32(len(argument)), Argument: argument[:sent]}
	for {
		sl, err := s.Open(p)
		if err != nil {
			return nil, err
		}
		r, err := sl.Call(p, wire.AppendDocument(sl.Buf[:0], sl.ID(), m))
		if err != nil {
			if m.From > 0 && wire.StatusOf(err) == wire.StatusBadRequest {
				err = errForgotten
			}
			return nil, err
		}
		part, err := wire.ParseDocumentReply(r.Body)
		switch {
		case err != nil:
		case m.Serial != 0 && part.Serial != m.Serial:
			err = fmt.Errorf("document %d in place of %d", part.Serial, m.Serial)
		case part.Wants != (sent < len(argument)):
			err = fmt.Errorf("%d bytes of %d are there, and more is wanted: %v", sent, len(argument), part.Wants)
		case part.Wants:
		case uint64(part.Total) > uint64(limit), int(part.Offset) != len(text), len(part.Data) == 0 && part.Total > 0:
			err = fmt.Errorf("%d bytes at %d of %d", len(part.Data), part.Offset, part.Total)
		}
		if err != nil {
			return nil, r.Malformed(err)
		}
		if part.Wants {
			m.Serial, m.Offset = part.Serial, uint32(sent)
			m.Argument = argument[sent:min(sent+room, len(argument))]
			sent += len(m.Argument)
		} else {
			text = append(text, part.Data...)
			m = wire.Document{Kind: kind, Serial: part.Serial, From: uint32(len(text))}
		}
		r.Done()
		if !part.Wants && len(text) == int(part.Total) {
			return text, nil
		}
	}
}

// unheard makes the error of a request that was sent and has no answer that makes
// sense an ErrOutcomeUnknown, if it changes something. What the server has refused,
// or was never sent, stays what it is.
func unheard(err error, changes bool) error {
	if !changes || base.IsNotSent(err) {
		return err
	}
	for _, silence := range [...]error{base.ErrLate, base.ErrLost, base.ErrProtocol, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, silence) {
			return base.Because(base.ErrOutcomeUnknown, err)
		}
	}
	return err
}
