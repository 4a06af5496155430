package main

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set when a release is linked: -ldflags "-X main.release=v1.2.3".
var release string

// version is the release, else the module version, else "dev".
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "dev"
}

func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var commit, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = " (modified)"
		}
	}
	if commit == "" {
		return ""
	}
	return commit + dirty
}

// traceFormat is the format this program reads (trace contract).
const traceFormat = "Haia Trace 0.0.10"

func (a *app) version() *cobra.Command {
	var asJSON bool
	c := a.command(&cobra.Command{
		Use:   "version",
		Short: "print the version of this program and of the trace format it reads",
		Args:  operands(0, 0),
	}, func(context.Context, []string) error {
		return a.showVersion(asJSON)
	})
	jsonFlag(c.Flags(), &asJSON)
	return c
}

func (a *app) showVersion(asJSON bool) error {
	if asJSON {
		o := object{{"shape", "version/1"}, {"version", version()}}
		o = o.add("revision", revision())
		a.answer(append(o, member{"go", runtime.Version()}, member{"platform", runtime.GOOS + "/" + runtime.GOARCH},
			member{"trace_format", traceFormat}))
		return nil
	}
	a.put("", "", "settlewatch "+version())
	if r := revision(); r != "" {
		a.put("", "", "revision "+r)
	}
	a.put("", "", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+", reads "+traceFormat)
	return nil
}
