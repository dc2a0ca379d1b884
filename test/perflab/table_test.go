package perflab

import (
	"strings"
	"testing"
)

func TestRows(t *testing.T) {
	lat := Row{Name: "get", Unit: "us", Ours: []float64{26, 30, 28}, Yardstick: "us ib_read_lat", Theirs: []float64{20, 30, 22}, Goal: 1.25}
	rate := Row{Name: "gets", Unit: "/s", Ours: []float64{90, 96}, Theirs: []float64{100, 100}, Goal: 0.95, AtLeast: true}
	lat.judge()
	rate.judge()
	if lat.OursMedian != 28 || lat.TheirsMedian != 22 || lat.Met || lat.RatioMedian != 28.0/22 {
		t.Errorf("%+v", lat)
	}
	if rate.OursMedian != 93 || rate.Met {
		t.Errorf("%+v", rate)
	}
	rate.Ours[0] = 97
	if rate.judge(); !rate.Met {
		t.Errorf("%+v", rate)
	}
	if s := text([]Row{lat, rate}); !strings.Contains(s, "MISSED") || !strings.Contains(s, ">= 0.95") || !strings.Contains(s, "met\n") {
		t.Errorf("%s", s)
	}
}
