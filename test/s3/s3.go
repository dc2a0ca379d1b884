// Package s3 is an S3 server in the process of a test. It refuses whoever has other credentials than Key and Secret, holds requests up as long
// as the test wants, and has objects that are damaged.
package s3

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// What a client needs, and what refuses it.
const (
	Bucket = "bucket" // the only one
	Key    = "an-id"
	Secret = "a-secret-word" // it is not looked at, because gofakes3 compares no signatures
	// BadSecret is a Key that is refused as if its secret were wrong, and Poor one without rights. All others are not known.
	BadSecret = "an-id-of-another-secret"
	Poor      = "an-id-without-rights"
)

// Options of a server. The zero value is one by plain HTTP on loopback, whose ETags are MD5s, and which knows no other checksums.
type Options struct {
	Listener net.Listener // nil: one on loopback
	TLS      bool
	// Checksums has the server keep the SHA-256 that clients send with an object, and tell it.
	Checksums bool
	// OddTags has ETags that say nothing of the bytes, as where the server encrypts objects with keys of its own.
	OddTags bool
	// Of is a server whose objects this one has, too; nil: it has its own.
	Of *Server
}

// A Server is one that runs until its test ends. It is safe for concurrent use.
type Server struct {
	*httptest.Server // URL, Certificate

	t       testing.TB
	o       Options
	backend *s3mem.Backend

	mu     sync.Mutex
	hold   func(method, name string) bool
	held   chan string
	free   chan struct{} // closed: nobody is held any more
	rotten map[string]bool
	sums   map[string]string // by name
	count  map[string]int    // of requests, by method
}

// Start starts one.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{t: t, o: o, backend: s3mem.New(), rotten: make(map[string]bool), sums: make(map[string]string), count: make(map[string]int)}
	if o.Of != nil {
		s.backend = o.Of.backend
	} else if err := s.backend.CreateBucket(Bucket); err != nil {
		t.Fatal(err)
	}
	fake := gofakes3.New(s.backend).Server()
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(fake, w, r) }))
	if o.Listener != nil {
		_ = s.Server.Listener.Close()
		s.Server.Listener = o.Listener
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not know its certificate
	if o.TLS {
		s.StartTLS()
	} else {
		s.Server.Start()
	}
	t.Cleanup(func() {
		s.release()
		s.Close()
	})
	return s
}

// serve answers a request.
func (s *Server) serve(fake http.Handler, w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/"+Bucket+"/")
	code := "InvalidAccessKeyId"
	for key, is := range map[string]string{Key: "", BadSecret: "SignatureDoesNotMatch", Poor: "AccessDenied"} {
		if strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/") {
			code = is
		}
	}
	if code != "" {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the server says no</Message><Resource>%s</Resource></Error>", code, name)
		return
	}
	free := s.comes(r, name)
	if free != nil {
		select {
		case <-free:
		case <-r.Context().Done():
			return
		}
	}
	if s.o.Checksums && r.Method == http.MethodPut {
		s.mu.Lock()
		s.sums[name] = r.Header.Get("x-amz-checksum-sha256")
		s.mu.Unlock()
	}
	r.Header.Del("x-amz-checksum-sha256") // gofakes3 would say it again as if it were of the bytes
	s.mu.Lock()
	sum, rotten := s.sums[name], s.rotten[name]
	s.mu.Unlock()
	a := &answer{ResponseWriter: w, rot: rotten && r.Method == http.MethodGet, odd: s.o.OddTags, sum: sum}
	fake.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK) // of an answer without a body
}

// comes notes a request. free: it waits until that is closed.
func (s *Server) comes(r *http.Request, name string) (free <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[r.Method]++
	if s.hold == nil || !s.hold(r.Method, name) {
		return nil
	}
	select {
	case s.held <- name:
	default: // the test has heard of enough
	}
	return s.free
}

// An answer is one that may be damaged on its way.
type answer struct {
	http.ResponseWriter
	rot, odd bool
	sum      string
	said     bool // the header
}

func (a *answer) WriteHeader(code int) {
	if a.said {
		return
	}
	a.said = true
	if h := a.Header(); h.Get("ETag") != "" {
		if a.sum != "" {
			h.Set("x-amz-checksum-sha256", a.sum)
		}
		if a.odd {
			h.Set("ETag", `"00000000000000000000000000000000"`)
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.rot && len(b) > 0 {
		a.rot = false
		b = bytes.Clone(b)
		b[len(b)/2] ^= 4
	}
	return a.ResponseWriter.Write(b)
}

// Hold has requests wait for which match says so, until release is called or the test ends. The names of objects of those that wait come by held.
func (s *Server) Hold(match func(method, name string) bool) (held <-chan string, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold, s.held, s.free = match, make(chan string, 1000), make(chan struct{})
	return s.held, s.release
}

func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold != nil {
		s.hold = nil
		close(s.free)
	}
}

// Requests says how many requests of a method have come.
func (s *Server) Requests(method string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[method]
}

// Object is what the server has under a name.
func (s *Server) Object(name string) []byte {
	s.t.Helper()
	o, err := s.backend.GetObject(Bucket, name, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer o.Contents.Close()
	b, err := io.ReadAll(o.Contents)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// Names are those of all objects that begin so.
func (s *Server) Names(prefix string) (names []string) {
	s.t.Helper()
	list, err := s.backend.ListBucket(Bucket, &gofakes3.Prefix{}, gofakes3.ListBucketPage{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.Contents {
		if strings.HasPrefix(o.Key, prefix) {
			names = append(names, o.Key)
		}
	}
	return names
}

// Damage flips a bit of an object, as somebody would who wrote it anew: what the server says of it is of the bytes that it has then.
func (s *Server) Damage(name string) {
	s.t.Helper()
	b := s.Object(name)
	b[len(b)/2] ^= 4
	if _, err := s.backend.PutObject(Bucket, name, map[string]string{}, bytes.NewReader(b), int64(len(b)), nil); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sums, name)
	delete(s.rotten, name)
}

// Rot has the server answer with a flipped bit whoever reads an object, and say of it what it said before, as if its disk were damaged.
func (s *Server) Rot(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rotten[name] = true
}

// Remove removes an object.
func (s *Server) Remove(name string) {
	s.t.Helper()
	if _, err := s.backend.DeleteObject(Bucket, name); err != nil {
		s.t.Fatal(err)
	}
}
