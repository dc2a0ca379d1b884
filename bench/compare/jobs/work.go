package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmakv/rdmakv/bench/compare/report"
)

// Work is a worker that does nothing but loads: it reads one job as JSON, carries it out,
// and writes the sample as JSON, as "compare worker" does. Of a job's fields it knows Load
// and Fill, of which one is set.
func Work(ctx context.Context, in io.Reader, out io.Writer, opener Opener) error {
	var j struct{ Load, Fill *Load }
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("job: %w", err)
	}
	var s report.Sample
	var err error
	switch {
	case j.Load != nil:
		s, err = j.Load.Run(ctx, opener)
	case j.Fill != nil:
		s, err = j.Fill.Fill(ctx, opener)
	default:
		err = errors.New("a job of nothing, or of another worker")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(s)
}
