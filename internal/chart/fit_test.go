package chart

import (
	"encoding/xml"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestPicturesFit: no text of a picture of the documentation ends outside of it, in
// a font as wide as Debian's.
func TestPicturesFit(t *testing.T) {
	const docs = "../../docs"
	pictures := 0
	err := filepath.WalkDir(docs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".svg" {
			return err
		}
		pictures++
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, fault := range cut(t, data) {
			t.Errorf("%s: %s", path, fault)
		}
		return nil
	})
	if err != nil || pictures < 5 {
		t.Errorf("%d pictures, %v", pictures, err)
	}
	if len(cut(t, []byte(`<svg viewBox="0 0 100 20"><text x="50" y="5" font-size="12">this is too long</text></svg>`))) != 1 {
		t.Error("the test finds nothing")
	}
}

// cut lists the texts of a picture that are not all inside of it.
func cut(t *testing.T, data []byte) (faults []string) {
	t.Helper()
	type text struct {
		X      float64 `xml:"x,attr"`
		Size   float64 `xml:"font-size,attr"`
		Anchor string  `xml:"text-anchor,attr"`
		Weight string  `xml:"font-weight,attr"`
		Turned string  `xml:"transform,attr"`
		Text   string  `xml:",chardata"`
	}
	var picture struct {
		ViewBox string  `xml:"viewBox,attr"`
		Size    float64 `xml:"font-size,attr"`
		Texts   []text  `xml:"text"`
		Groups  []struct {
			Texts []text `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal(data, &picture); err != nil {
		t.Fatal(err)
	}
	box := strings.Fields(picture.ViewBox)
	width, err := strconv.ParseFloat(box[2], 64)
	if err != nil {
		t.Fatal(err)
	}
	texts := picture.Texts
	for _, g := range picture.Groups {
		texts = append(texts, g.Texts...)
	}
	for _, s := range texts {
		size := orDefault(s.Size, picture.Size)
		if s.Turned != "" || strings.TrimSpace(s.Text) == "" {
			continue
		}
		w := textWidth(strings.TrimSpace(s.Text), size, s.Weight == "bold")
		from := s.X
		switch s.Anchor {
		case "middle":
			from -= w / 2
		case "end":
			from -= w
		}
		if from < 0 || from+w > width {
			faults = append(faults, strconv.Quote(s.Text)+" goes from "+num(from)+" to "+num(from+w)+" of "+num(width))
		}
	}
	return faults
}

// TestWrap: words stay whole, and no line is wider than it may be.
func TestWrap(t *testing.T) {
	text := "one two three four five six seven eight nine ten eleven twelve"
	lines := wrap(text, 120, 12, false)
	if strings.Join(lines, " ") != text || len(lines) < 3 {
		t.Errorf("%q", lines)
	}
	for _, l := range lines {
		if textWidth(l, 12, false) > 120 {
			t.Errorf("%q is too wide", l)
		}
	}
	if got := wrap("incomprehensibilities", 10, 12, false); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// TestTextWidth: the widths are those that the Go fonts have.
func TestTextWidth(t *testing.T) {
	for _, tc := range []struct {
		text string
		bold bool
		want float64 // of the Go font at 12 pixels
	}{
		{"Latency of get and put", false, 118.9},
		{"Latency of get and put", true, 128.0},
		{"latency (µs)", false, 62.6},
	} {
		if got := textWidth(tc.text, 12, tc.bold) / widest; got < tc.want-0.1 || got > tc.want+0.1 {
			t.Errorf("%q, bold %v: %.2f pixels, not %.1f", tc.text, tc.bold, got, tc.want)
		}
	}
}
