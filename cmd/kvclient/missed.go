package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/rdma"
)

// How a server that was not reached is told of: one line, the reason first, of the
// fabric that came farthest. The other fabrics' reasons are in the log at
// --log-level debug, and doctor goes through every step.
//
//	no server at 10.0.0.1:7400 (node kv1): connection refused (kvclient doctor 10.0.0.1:7400 tells more)

// explain is an error as a user reads it: one line where servers were not reached.
func (a *app) explain(err error) string {
	if err == nil {
		return ""
	}
	if keys := (keysErrors)(nil); errors.As(err, &keys) {
		return keys.Error() // each is explained by itself
	}
	missed := client.UnreachedServers(err)
	switch {
	case errors.Is(err, client.ErrOutcomeUnknown):
		return err.Error() // what may have happened counts more than why
	case len(missed) > 0:
		text := missedText(missed)
		if part := (*client.PartialError)(nil); errors.As(err, &part) {
			text = fmt.Sprintf("%d of %d failed: %s", len(part.Failures), part.Total, text)
		}
		return fmt.Sprintf("%s (kvclient doctor %s tells more)", text, missed[0].Server)
	case a.cfg != nil && errors.Is(err, client.ErrUnavailable) && (errors.Is(err, client.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)):
		e := (*client.Error)(nil)
		if errors.As(err, &e) && e.Node != "" {
			return fmt.Sprintf("no server of node %s: no answer (kvclient cluster status tells more)", e.Node)
		}
		return fmt.Sprintf("no server at %s: no answer (kvclient doctor %s tells more)", strings.Join(a.cfg.Servers, ", "), a.cfg.Servers[0])
	}
	return err.Error()
}

// missedText says of each address why it was not reached; addresses with the
// same reason together.
func missedText(missed []*client.Unreached) string {
	type kind struct{ before, after string }
	var kinds []kind
	at := make(map[kind][]string)
	for _, u := range missed {
		k := kind{"no server at ", ": " + reasonOf(u.Err)}
		switch host := (*net.DNSError)(nil); {
		case u.Answered && (errors.Is(u.Err, client.ErrTimeout) || isDeadline(u.Err)):
			k = kind{"a server accepts connections at ", " and does not answer in time"}
		case u.Answered:
			k.before = "refused by the server at "
		case !u.Asked && !errors.As(u.Err, &host):
			k.before = "no way by " + u.Fabric + " to "
		}
		where := u.Server
		if u.Node != "" {
			where += " (node " + doctor.OneLine(u.Node) + ")"
		}
		if at[k] == nil {
			kinds = append(kinds, k)
		}
		at[k] = append(at[k], where)
	}
	var texts []string
	for _, k := range kinds {
		texts = append(texts, k.before+strings.Join(at[k], ", ")+k.after)
	}
	return doctor.OneLine(strings.Join(texts, "; "))
}

// plainErrnos are reasons of the network that need no further words.
var plainErrnos = []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.ETIMEDOUT}

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rdma.ErrDeadline)
}

// reasonOf is the innermost reason that says what happened.
func reasonOf(err error) string {
	var host *net.DNSError
	var errno syscall.Errno
	switch {
	case errors.Is(err, rdma.ErrProtocol):
		return "what listens there is no rdmakv server (is it the address of listen?)"
	case errors.As(err, &host) && host.IsNotFound:
		return "no such host"
	case errors.As(err, &host):
		return host.Err
	case errors.As(err, &errno) && slices.Contains(plainErrnos, errno):
		return errno.Error()
	case isDeadline(err):
		return "no answer"
	}
	return trimmed(err.Error())
}

// trimmed takes the names of layers off the beginning of a message.
func trimmed(text string) string {
	for {
		before := text
		for _, word := range []string{"iwarp: ", "verbs: ", "shm: ", "ibv: ", client.ErrNoRDMA.Error() + ": ", client.ErrUnavailable.Error() + ": ", rdma.ErrNoDevice.Error() + ": ", rdma.ErrPeerGone.Error() + ": "} {
			text = strings.TrimPrefix(text, word)
		}
		// "verbs route 10.0.0.1:7400: "
		if head, rest, ok := strings.Cut(text, ": "); ok {
			words := strings.Fields(head)
			if len(words) == 3 && slices.Contains([]string{"iwarp", "verbs", "shm"}, words[0]) {
				text = rest
			}
		}
		if text == before {
			return text
		}
	}
}

// noSuchDevice is the error of a device that was named in the configuration and
// is on no fabric; nil if err is another one.
func (a *app) noSuchDevice(ctx context.Context, err error) error {
	missed := client.UnreachedServers(err)
	if a.cfg == nil || len(a.cfg.Device) == 0 || !errors.Is(err, rdma.ErrNoDevice) ||
		slices.ContainsFunc(missed, func(u *client.Unreached) bool { return u.Asked || u.Answered }) {
		return nil
	}
	fabrics, pickErr := pickFabrics(a.cfg.Config, a.logger())
	if pickErr != nil {
		return nil
	}
	var there []string
	for _, f := range fabrics {
		list, _ := f.Devices(ctx)
		for _, d := range list {
			if slices.Contains(a.cfg.Device, d.Name) {
				return nil // it is something else
			}
			there = append(there, d.Name)
		}
	}
	names := strings.Join(there, ", ")
	if names == "" {
		names = "none"
	}
	return fmt.Errorf("device: there is no %s here; devices: %s (kvclient fabric devices tells more)", strings.Join(quoteAll(a.cfg.Device), ", "), names)
}

func quoteAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote([]byte(s))
	}
	return out
}
