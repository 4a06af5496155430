package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/host"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// installPolicy is the policy an entry names (guard contract, section 2).
type installPolicy struct {
	path    string
	starter []byte // what belongs there; nil when there is a file
	fault   error  // why the file that is there cannot be judged by
}

// policyFor chooses the policy of an entry. One the host names already stays: an
// installation that is repeated must not loosen what a person has set.
func (o *installOptions) policyFor(h *host.Host, p host.Places, file string, before host.Server) (*installPolicy, error) {
	root, err := filepath.Abs(string(o.dir))
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Input, "an absolute path", "find %s", plain.Quote(string(o.dir), plain.Detail))
	}
	place := string(o.guard)
	if place == "" {
		place = before.Path("--guard-config")
	}
	switch {
	case place != "":
	case h.Project:
		// A project is where its agent writes, so its policy lies with the person. The
		// root tells the policies of several projects apart.
		sum := sha256.Sum256([]byte(root))
		place = filepath.Join(p.Config, "settlewatch", fileName(o.name)+"-"+hex.EncodeToString(sum[:4])+"-policy.json")
	default:
		place = filepath.Join(filepath.Dir(file), fileName(o.name)+"-policy.json")
	}
	if place, err = filepath.Abs(place); err != nil {
		return nil, errcode.Wrap(err, errcode.Input, "an absolute path", "find %s", plain.Quote(string(o.guard), plain.Detail))
	}
	// A root that is not there yet has nothing but its name.
	inside := place == root || strings.HasPrefix(place, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator))
	if real, err := o.resolve(); err == nil {
		inside = inside || leadsThrough(place, real)
	}
	if inside {
		return nil, errcode.New(errcode.Input, "--guard-config with a file where no agent writes",
			"use the policy file %s: it lies in the trace root", plain.Quote(place, plain.Detail))
	}
	out := &installPolicy{path: place}
	if _, err := os.Lstat(place); errors.Is(err, fs.ErrNotExist) {
		out.starter = guard.StarterPolicy(root)
		return out, nil
	}
	_, out.fault = (&guardOptions{config: path(place)}).readPolicy(root, nil)
	return out, nil
}

// fileName is a server's name as a part of a file's.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
}

func (a *app) notePolicy(p *installPolicy) {
	if p.fault != nil {
		e := errcode.Of(p.fault)
		a.note("note: %s: the server would answer every check with not_ready until that is put right; try: %s", e.Message, e.Hint)
	}
}

// write puts the starter where there is no file. One that has come meanwhile is not
// overwritten.
func (p *installPolicy) write() (made bool, err error) {
	if p.starter == nil {
		return false, nil
	}
	failed := func(err error) (bool, error) {
		return false, errcode.Wrap(errcode.Bare(err), errcode.Input, "--guard-config with a file that can be written", "write the starter policy %s", plain.Quote(p.path, plain.Detail))
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return failed(err)
	}
	f, err := os.OpenFile(p.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return failed(err)
	}
	_, err = f.Write(p.starter)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(p.path) // a part of a policy is none
		return failed(err)
	}
	return true, nil
}

// addTo adds the policy to what install prints.
func (p *installPolicy) addTo(o object, made bool) object {
	o = o.with("policy", p.path).with("policy_written", made)
	if p.starter != nil && !made {
		o = o.with("starter", raw(p.starter))
	}
	return o
}
