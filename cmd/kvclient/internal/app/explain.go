package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"

	"github.com/rdmakv/rdmakv/client"
	"github.com/rdmakv/rdmakv/internal/cli"
	"github.com/rdmakv/rdmakv/internal/cli/fabrics"
	"github.com/rdmakv/rdmakv/internal/doctor"
	"github.com/rdmakv/rdmakv/rdma"
)

// How an error names a server that was not reached: one line, the reason first, of the
// fabric that came farthest. The other fabrics' reasons are in the log at
// --log-level debug, and doctor goes through every step.
//
//	no server at 10.0.0.1:7400 (node kv1): connection refused (kvclient doctor 10.0.0.1:7400 tells more)

// Explain is an error as a user reads it. Errors of the library say everything that
// is known, fabric by fabric; where servers were not reached, that would be several
// lines of which one matters, so it becomes one line here. A write whose outcome is
// unknown is never shortened: what may have happened to the data counts more than
// why.
func (a *App) Explain(err error) string {
	if err == nil {
		return ""
	}
	if keys := (KeysErrors)(nil); errors.As(err, &keys) {
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
	case a.Config != nil && errors.Is(err, client.ErrUnavailable) && (errors.Is(err, client.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)):
		e := (*client.Error)(nil)
		if errors.As(err, &e) && e.Node != "" {
			return fmt.Sprintf("no server of node %s: no answer (kvclient cluster status tells more)", e.Node)
		}
		return fmt.Sprintf("no server at %s: no answer (kvclient doctor %s tells more)", strings.Join(a.Config.Servers, ", "), a.Config.Servers[0])
	}
	return err.Error()
}

// missedText says of each address why it was not reached, with the addresses of one
// reason together, so that a cluster that is down is one sentence, not one for every
// node.
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

// plainErrnos are reasons of the network that need no further words: what the
// layers above have put around them only repeats the address.
var plainErrnos = []syscall.Errno{syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	syscall.EHOSTDOWN, syscall.ENETDOWN, syscall.ETIMEDOUT}

// isDeadline reports whether time ran out, whichever layer noticed it.
func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rdma.ErrDeadline)
}

// reasonOf is the innermost reason that says what happened, in the words that other
// network programs use for it, because users look those up.
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

// trimmed takes the names of layers off the beginning of a message, as often as one
// stands there: each layer puts its own before the error of the one below, and the
// address, which the caller has said already.
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

// noSuchDevice is the error of a device that the configuration names and that no
// fabric has; nil if err is another one. The library can only say that no fabric
// reaches the server; that the name is mistyped is seen by looking at the devices
// that there are, which is done here, once, and only when nothing was reached.
func (a *App) noSuchDevice(ctx context.Context, err error) error {
	missed := client.UnreachedServers(err)
	if a.Config == nil || len(a.Config.Device) == 0 || !errors.Is(err, rdma.ErrNoDevice) ||
		slices.ContainsFunc(missed, func(u *client.Unreached) bool { return u.Asked || u.Answered }) {
		return nil
	}
	made, pickErr := fabrics.ForClient(a.Config.Config, a.Logger())
	if pickErr != nil {
		return nil
	}
	var there []string
	for _, f := range made {
		list, _ := f.Devices(ctx)
		for _, d := range list {
			if slices.Contains(a.Config.Device, d.Name) {
				return nil // it is something else
			}
			there = append(there, d.Name)
		}
	}
	names := strings.Join(there, ", ")
	if names == "" {
		names = "none"
	}
	return fmt.Errorf("device: there is no %s here; devices: %s (kvclient fabric devices tells more)", strings.Join(quoteAll(a.Config.Device), ", "), names)
}

// quoteAll quotes each text of a list for a message.
func quoteAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = cli.Quote([]byte(s))
	}
	return out
}

// whyWaiting is the reason for a wait in few words. It stands in a notice behind the
// names of the servers, so it does not repeat them, unless it concerns a node whose
// address the cluster has told.
func whyWaiting(why error) string {
	var errno syscall.Errno
	var dns *net.DNSError
	missed := client.UnreachedServers(why)
	switch {
	case len(missed) > 0 && missed[0].Node != "": // not the servers that are named before it
		return missedText(missed)
	case errors.Is(why, client.ErrNoMap):
		return "the cluster has no shard map yet (kvclient cluster init)"
	case errors.Is(why, client.ErrOverloaded):
		return "it has too many sessions"
	case errors.As(why, &dns):
		return fmt.Sprintf("%q has no address", dns.Name)
	case errors.Is(why, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(why, &errno):
		return errno.Error()
	}
	return why.Error()
}

// KeysErrors is why some of the keys of a command were not done, one line for each
// reason; the other keys were done. What may have happened to one key must not be
// hidden behind what happened to another, so errors.Is finds the reasons of all of
// them.
type KeysErrors []*keysError

// A keysError is some keys with one reason.
type keysError struct {
	keys [][]byte
	err  error  // of the first of them, without its key
	text string // as it is told
}

func (e KeysErrors) Error() string {
	lines := make([]string, len(e))
	for i, k := range e {
		lines[i] = k.names() + ": " + k.text
	}
	return strings.Join(lines, "\n")
}

func (e KeysErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, k := range e {
		errs[i] = k.err
	}
	return errs
}

// AddFailed adds a key to those that failed for the same reason, or begins another
// reason with it. Reasons are the same if they read the same: a user sees nothing
// else of them.
func (a *App) AddFailed(failed KeysErrors, key []byte, err error) KeysErrors {
	if e, ok := err.(*client.Error); ok {
		of := *e
		of.Key = "" // it stands before the reason, with the others
		err = &of
	}
	text := a.Explain(err)
	for _, k := range failed {
		if k.text == text {
			k.keys = append(k.keys, key)
			return failed
		}
	}
	return append(failed, &keysError{[][]byte{key}, err, text})
}

// names lists the keys, the first ten if there are many: a line of a thousand keys
// tells no more.
func (e *keysError) names() string {
	const most = 10
	text := strings.Join(quoteKeys(e.keys[:min(len(e.keys), most)]), ", ")
	if n := len(e.keys) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// quoteKeys quotes keys for a message; they may be any bytes.
func quoteKeys(keys [][]byte) []string {
	list := make([]string, len(keys))
	for i, key := range keys {
		list[i] = cli.Quote(key)
	}
	return list
}
