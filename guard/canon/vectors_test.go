package canon

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// outcome is what one rule makes of a vector: a text and its hash, or a refusal.
type outcome struct {
	Canonical string
	SHA256    string
	Reject    string
}

type vector struct {
	Name      string
	InputJSON string   `json:"input_json"`
	Lexeme    outcome  // the published reference
	Float     outcome  // every number a double
	JCS       outcome  // the later revision
	CodePoint *outcome `json:"codepoint_order"`
}

func vectors(t *testing.T) []vector {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "canonical.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format  string
		Vectors []vector
	}
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	if file.Format != "chp-canonical/1" || len(file.Vectors) < 60 {
		t.Fatalf("got %d vectors of format %q", len(file.Vectors), file.Format)
	}
	return file.Vectors
}

func Test03EveryVectorHoldsUnderEveryRule(t *testing.T) {
	for _, v := range vectors(t) {
		for rule, want := range map[Rule]outcome{Lexeme: v.Lexeme, Float: v.Float, JCS: v.JCS} {
			t.Run(v.Name+"/"+rule.String(), func(t *testing.T) {
				text, err := Text([]byte(v.InputJSON), rule)
				hash, hashErr := HashText([]byte(v.InputJSON), rule)
				if want.Reject != "" {
					var e *Error
					if !errors.As(err, &e) || !errors.As(hashErr, &e) {
						t.Fatalf("got %s, %v and %v, want a refusal for %s", text, err, hashErr, want.Reject)
					}
					// NaN and Infinity are not JSON, so the parser sees them first.
					if notJSON := new(jsjson.Doc).Parse([]byte(v.InputJSON)) != nil; notJSON != (e.Reason == NotJSON) ||
						!notJSON && string(e.Reason) != want.Reject {
						t.Errorf("refused for %s, want %s", e.Reason, want.Reject)
					}
					return
				}
				if err != nil || hashErr != nil {
					t.Fatal(err, hashErr)
				}
				if string(text) != want.Canonical {
					t.Errorf("got  %s\nwant %s", text, want.Canonical)
				}
				if hash != want.SHA256 {
					t.Errorf("hash %s, want %s", hash, want.SHA256)
				}
				// Older implementations sort by code point. Theirs is not ours.
				if v.CodePoint != nil && (hash == v.CodePoint.SHA256 || string(text) == v.CodePoint.Canonical) {
					t.Error("keys are in code point order")
				}
			})
		}
	}
}
