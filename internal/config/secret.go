package config

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Limits of a secret, in bytes after the newline at its end is cut off.
const (
	MinSecret = 16
	MaxSecret = 1024
)

// MaxGossipKeys bounds the gossip keys: one in use and a few on their way in
// and out.
const MaxGossipKeys = 8

// These variables hold secrets themselves. They are no keys, because a secret
// must not stand in a flag, where ps(1) shows it, nor in a file that people
// read to each other.
const (
	EnvSecret    = EnvPrefix + "SECRET"
	EnvGossipKey = EnvPrefix + "GOSSIP_KEY"
)

// hidden is a text that no format verb shows: fmt does not follow a pointer
// inside a struct, and does not call the methods of fields that it may not
// access.
type hidden struct{ text *string }

func hide(text string) hidden {
	if text == "" {
		return hidden{}
	}
	return hidden{&text}
}

// show is the text; "" if there is none.
func (h hidden) show() string {
	if h.text == nil {
		return ""
	}
	return *h.text
}

// takeSecrets takes the secrets out of the environment.
func (l *Loaded) takeSecrets(env []string) {
	l.secret, l.gossipKey = hide(lookup(env, EnvSecret)), hide(lookup(env, EnvGossipKey))
}

// Secret is what clients and servers share: the variable RDMAKV_SECRET, else
// the content of the file that secret_file names, else nil. The file must
// belong to its owner alone, because a process that can read it can read and
// write every key. Both at once are refused: one of them would be believed to
// be in force.
func (l *Loaded) Secret() ([]byte, error) {
	switch {
	case l.secret.text == nil:
		return l.Config.Secret()
	case l.SecretFile != "":
		return nil, Faults{{Source: l.Sources["secret_file"], Key: "secret_file", Reason: EnvSecret + " is set too: take one of them away"}}
	}
	secret, err := checkSecret([]byte(l.secret.show()))
	if err != nil {
		return nil, Faults{{Source: EnvSecret, Reason: err.Error()}}
	}
	return secret, nil
}

// Secret reads the file that secret_file names: nil when it names none.
func (c *Config) Secret() ([]byte, error) {
	if c.SecretFile == "" {
		return nil, nil
	}
	secret, err := ReadSecret(c.SecretFile)
	if err != nil {
		return nil, Faults{{Source: c.SecretFile, Key: "secret_file", Reason: err.Error()}}
	}
	return secret, nil
}

// ReadSecret reads a secret from a file that its owner alone may read. The
// secrets of tenants are in such files, too.
func ReadSecret(path string) ([]byte, error) {
	data, err := readPrivate(path, MaxSecret+3)
	if err != nil {
		return nil, err
	}
	return checkSecret(bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r")))
}

func checkSecret(data []byte) ([]byte, error) {
	if len(data) < MinSecret || len(data) > MaxSecret {
		return nil, fmt.Errorf("holds a secret of %d bytes, want %d to %d", len(data), MinSecret, MaxSecret)
	}
	return data, nil
}

// GossipKeys are the keys that gossip is encrypted with, the first in use: from
// the variable RDMAKV_GOSSIP_KEY, with commas between them, else from the file
// that gossip.key_file names, one a line; else nil.
func (l *Loaded) GossipKeys() ([][]byte, error) {
	text, source := l.gossipKey.show(), EnvGossipKey
	switch path := l.Gossip.KeyFile; {
	case path != "" && text != "":
		return nil, Faults{{Source: l.Sources["gossip.key_file"], Key: "gossip.key_file", Reason: EnvGossipKey + " is set too: take one of them away"}}
	case path != "":
		data, err := readPrivate(path, 4096)
		if err != nil {
			return nil, Faults{{Source: path, Key: "gossip.key_file", Reason: err.Error()}}
		}
		text, source = string(data), path
	case text == "":
		return nil, nil
	}
	keys, err := parseGossipKeys(text)
	if err != nil {
		return nil, Faults{{Source: source, Key: "gossip.key_file", Reason: err.Error()}}
	}
	return keys, nil
}

// parseGossipKeys reads keys in base64, in lines or with commas between them.
// Its errors count keys and never show one.
func parseGossipKeys(text string) (keys [][]byte, err error) {
	fields := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' || r == '\r' || r == ' ' || r == '\t' })
	if len(fields) == 0 {
		return nil, errors.New("holds no key, want base64 of 16, 24 or 32 random bytes (head -c 32 /dev/urandom | base64)")
	}
	if len(fields) > MaxGossipKeys {
		return nil, fmt.Errorf("holds %d keys, at most %d are allowed", len(fields), MaxGossipKeys)
	}
	for i, field := range fields {
		key, err := base64.StdEncoding.Strict().DecodeString(field)
		if err != nil {
			return nil, fmt.Errorf("key %d is no base64", i+1)
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return nil, fmt.Errorf("key %d has %d bytes, want 16, 24 or 32", i+1, n)
		}
		for j, other := range keys {
			if bytes.Equal(key, other) {
				return nil, fmt.Errorf("keys %d and %d are the same", j+1, i+1)
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// openDoors refuses a cluster that any host may enter, unless the configuration
// asks for that: rkeys travel in gossip, and a host that has one and a
// connection reads memory with it. It only looks whether there are secrets and
// does not read them.
func (l *Loaded) openDoors() (faults Faults) {
	if !l.Clustered() || l.Insecure {
		return nil
	}
	missing := func(key, format string, args ...any) {
		faults = append(faults, Fault{Source: l.Sources["gossip.bind"], Key: key, Reason: fmt.Sprintf(format, args...)})
	}
	if l.Gossip.KeyFile == "" && l.gossipKey.text == nil {
		missing("gossip.key_file", "a cluster needs a gossip key here or in %s (or insecure: true, where everybody on the network may come in)", EnvGossipKey)
	}
	if l.SecretFile == "" && l.secret.text == nil && l.TenantsFile == "" {
		missing("secret_file", "a cluster needs a secret here or in %s, or a tenants_file (or insecure: true, where everybody may read and write)", EnvSecret)
	}
	if l.Cluster.Name == "" {
		missing("cluster.name", "a cluster needs a name, so that two of them never meet by mistake (or insecure: true)")
	}
	return faults
}

// readPrivate reads a small regular file that only its owner may read or
// change.
func readPrivate(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("is no regular file")
	}
	if perm := st.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf("has mode %04o: others may read or change it; make it 0600", perm)
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("is larger than %d bytes", most)
	}
	return data, nil
}
