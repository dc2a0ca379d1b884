package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Schema is the version of the JSON. It is raised when a field changes its
// meaning or goes; a new field does not raise it.
const Schema = 1

// A Result is one run of the comparison: what bench/results/latest.json holds.
type Result struct {
	Schema   int       `json:"schema"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"` // all of it, loading and starting included
	Rounds   int       `json:"rounds"`
	Slice    float64   `json:"slice_seconds"` // of what one contender is measured in one round
	Quick    bool      `json:"quick"`         // shortened: the figures are a test of the program only
	Seed     uint64    `json:"seed"`          // of the orders and of the keys
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`
	Rows     []Row     `json:"rows"`
	// Counted is there where instructions were counted beside the times, nil
	// elsewhere.
	Counted *Counted `json:"counted,omitempty"`
}

// A Version is what one program calls itself.
type Version struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// A Row is one question, asked of several contenders.
type Row struct {
	Name   string `json:"name"`  // as -rows takes it
	Title  string `json:"title"` // one line
	Text   string `json:"text"`  // how it was measured, in sentences
	Figure Figure `json:"figure"`
	// Contenders are in the order of the program, not of the rounds.
	Contenders []Contender `json:"contenders"`
	Targets    []Target    `json:"targets"`
	// Error says why the whole row could not be measured: a server did not start.
	Error string `json:"error,omitempty"`
}

// A Figure says what is compared in a row.
type Figure struct {
	Name string `json:"name"` // "p50", "rate", "bytes_per_key"
	Unit string `json:"unit"` // "µs", "/s", "MiB/s", "B"
	// More says that more is better; otherwise less is.
	More bool `json:"more"`
}

// Kinds of contenders.
const (
	Ours  = "rdmakv"
	Peer  = "peer"
	Floor = "floor" // no store: what a store is built on
)

// A Contender is one system, asked in one way.
type Contender struct {
	Name    string `json:"name"`   // unique in its row
	Kind    string `json:"kind"`   // Ours, Peer or Floor
	System  string `json:"system"` // "redis", "memcached", "rdmakv shm", "tcp"
	Waiting string `json:"waiting,omitempty"`
	// How says how it was asked: the command, or what the program's own client
	// did.
	How    string  `json:"how"`
	Rounds []Round `json:"rounds"`
	// Summary is of the row's figure over the rounds that did not fail.
	Summary *Summary `json:"summary,omitempty"`
}

// A Round is one contender's turn in one round.
type Round struct {
	Round int `json:"round"` // from 1
	Order int `json:"order"` // the how-many-th of its round, from 1
	Sample
	// Error says why there is no sample.
	Error string `json:"error,omitempty"`
}

// A Sample is what one turn measured. Fields that the way of measuring does not
// give are 0 and left out.
type Sample struct {
	Ops     uint64  `json:"ops,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // of measuring
	// Rate is operations per second: each key of a batch is one.
	Rate float64 `json:"rate,omitempty"`
	// Latencies in microseconds, of a call; of a batch where calls are batches.
	P50  float64 `json:"p50_us,omitempty"`
	P90  float64 `json:"p90_us,omitempty"`
	P99  float64 `json:"p99_us,omitempty"`
	P999 float64 `json:"p99_9_us,omitempty"`
	Max  float64 `json:"max_us,omitempty"`
	// CPU time in microseconds per operation, user and system, measured over the
	// same seconds; ServerCPU is of all nodes together.
	ServerCPU float64 `json:"server_cpu_us,omitempty"`
	ClientCPU float64 `json:"client_cpu_us,omitempty"`
	// LeaderCPU and FollowerCPU are parts of ServerCPU, where one node of a cluster leads all
	// others: its own, and the mean of the others. A server that is alone leads itself.
	LeaderCPU   float64 `json:"leader_cpu_us,omitempty"`
	FollowerCPU float64 `json:"follower_cpu_us,omitempty"`
	// Instructions of an operation, in a guest whose clock counts them; the times
	// above are left out there.
	Instructions float64 `json:"instructions,omitempty"`
	// BytesPerKey is memory beyond key and value.
	BytesPerKey float64 `json:"bytes_per_key,omitempty"`
	// HugeBytes is how much of a peer's map is in huge pages.
	HugeBytes uint64 `json:"huge_bytes,omitempty"`
	// Value is the figure of the row where it is none of the above.
	Value float64 `json:"value,omitempty"`
	// Paths are the shares of gets by how they were answered, of rdmakv.
	Paths map[string]float64 `json:"paths,omitempty"`
}

// A Target is what a row is held to.
type Target struct {
	Text string `json:"text"`
	// Ours is the contender that the target is for; Theirs are the ones it is
	// compared with, of which the best counts. Without Theirs the figure itself
	// is compared with the limit.
	Ours   string   `json:"ours"`
	Theirs []string `json:"theirs,omitempty"`
	Want   string   `json:"want"` // AtMost or AtLeast
	Limit  float64  `json:"limit"`
	// Figure is what is compared where it is not the row's: another one of the same turns.
	Figure *Figure `json:"figure,omitempty"`
	// Headline is the line of README's table that shows it; "" for none.
	Headline string `json:"headline,omitempty"`
	// Aside marks a ratio that is told for honesty and is no target.
	Aside bool `json:"aside,omitempty"`

	Against string   `json:"against,omitempty"` // the one of Theirs that was best
	Ratio   *Summary `json:"ratio,omitempty"`   // or the figure, without Theirs
	Reached Verdict  `json:"reached"`
	Because string   `json:"because,omitempty"` // why it was not measured
}

// These say what a target demands.
const (
	AtMost  = "at most"
	AtLeast = "at least"
)

// A Verdict says whether a target was reached.
type Verdict string

// The verdicts.
const (
	Yes         Verdict = "yes"
	No          Verdict = "no"
	NotMeasured Verdict = "not measured"
)

// WriteJSON writes the result, indented.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "\t")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// ErrSchema: the JSON is of another version of this program, or none of it.
var ErrSchema = errors.New("no result that this program can read")

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(r io.Reader) (*Result, error) {
	var res Result
	if err := json.NewDecoder(r).Decode(&res); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrSchema, err)
	}
	if res.Schema != Schema {
		return nil, fmt.Errorf("%w: its schema is %d, this program knows %d", ErrSchema, res.Schema, Schema)
	}
	return &res, nil
}
