package main

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// processSandbox restricts this process by Landlock.
func processSandbox() *sandbox { return &sandbox{outside: restrictOutside, files: restrictFiles} }

// The versions of Landlock that brought what is asked of it (landlock(7), "VERSIONS").
const (
	landlockTCP    = 4
	landlockScopes = 6
	landlockUDP    = 10
)

var errNoLandlock = errors.New("the kernel has no Landlock, or does not let this process use it")

func restrictOutside(dial bool) (taken []string, by string, err error) {
	version, err := ll.LandlockGetABIVersion()
	if err != nil || version < 1 {
		return nil, "", errNoLandlock
	}
	c := landlock.V11
	c.HandledAccessFS = ll.AccessFSExecute // no rule allows it anywhere
	taken = []string{"starting programs"}
	if dial {
		c.HandledAccessNet = ll.AccessNetBindTCP
	}
	// Sockets that are open stay open, so a server listens and answers as before.
	switch {
	case version < landlockTCP:
	case dial:
		taken = append(taken, "listening on more TCP ports")
	case version < landlockUDP:
		taken = append(taken, "TCP connections", "listening on more TCP ports")
	default:
		taken = append(taken, "TCP connections", "listening on more TCP ports", "UDP")
	}
	if version >= landlockScopes {
		taken = append(taken, "signals to other processes")
	}
	return taken, fmt.Sprintf("Landlock, version %d", version), c.BestEffort().Restrict()
}

const (
	readRights  = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSReadDir)
	writeRights = readRights | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSRemoveFile | ll.AccessFSRemoveDir
)

func restrictFiles(read, write, sweep []string) error {
	c := landlock.V11
	c.HandledAccessFS &^= ll.AccessFSExecute // gone already
	rules := []landlock.Rule{
		landlock.PathAccess(readRights, read...).IgnoreIfMissing(),
		landlock.PathAccess(writeRights, write...),
		landlock.PathAccess(ll.AccessFSRemoveDir, sweep...),
		landlock.PathAccess(ll.AccessFSReadFile|ll.AccessFSWriteFile, "/dev/null"),
		landlock.PathAccess(ll.AccessFSReadFile, "/dev/urandom").IgnoreIfMissing(),
	}
	return c.BestEffort().RestrictPaths(rules...)
}
