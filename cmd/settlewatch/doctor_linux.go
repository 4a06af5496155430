package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// fileSystem names the file system a path is on; remote means that other
// machines, or a program behind FUSE, may change files without the kernel
// announcing it here.
func fileSystem(path string) (kind string, remote bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return "", false
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", true
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "SMB", true
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE", true
	case unix.V9FS_MAGIC:
		return "9P", true
	case unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC:
		return "a network file system", true
	case unix.EXT4_SUPER_MAGIC:
		return "ext4", false
	case unix.XFS_SUPER_MAGIC:
		return "XFS", false
	case unix.BTRFS_SUPER_MAGIC:
		return "Btrfs", false
	case unix.TMPFS_MAGIC:
		return "tmpfs, which is gone after a restart", false
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs", false
	}
	return fmt.Sprintf("type %#x", uint32(st.Type)), false
}

// checkWatch tries what the watcher will do, and shows the limits it lives
// under.
func checkWatch(d *findings, events string) {
	limits := fmt.Sprintf("limits: %s watches, %s instances, %s queued events",
		limit("max_user_watches"), limit("max_user_instances"), limit("max_queued_events"))
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		defer unix.Close(fd)
		_, err = unix.InotifyAddWatch(fd, events, unix.IN_MODIFY)
	}
	switch {
	case err == nil:
		d.add("watch", fine, "", "changes are announced; %s", limits)
	case errors.Is(err, unix.ENOENT):
		d.add("watch", notice, "", "nothing to watch yet; %s", limits)
	case errors.Is(err, unix.EMFILE):
		d.add("watch", warning, "sysctl fs.inotify.max_user_instances=512, or end programs that watch files",
			"no watch to be had, so files are looked at again and again; %s", limits)
	case errors.Is(err, unix.ENOSPC):
		d.add("watch", warning, "sysctl fs.inotify.max_user_watches=524288",
			"no watch to be had, so files are looked at again and again; %s", limits)
	default:
		d.add("watch", warning, "", "changes cannot be watched (%v), so files are looked at again and again; %s", err, limits)
	}
}

func limit(name string) string {
	text, err := os.ReadFile("/proc/sys/fs/inotify/" + name)
	if err != nil {
		return "?"
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return "?"
	}
	return plain.Number(n)
}
