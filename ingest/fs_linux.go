package ingest

import "golang.org/x/sys/unix"

// remoteFileSystem names the kind of a file system on which other hosts write
// without this kernel being told; "" for a local one.
func remoteFileSystem(path string) string {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return ""
	}
	switch int64(st.Type) { //nolint:unconvert // an int32 on some systems
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC:
		return "smb"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.V9FS_MAGIC:
		return "9p"
	case unix.AFS_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC:
		return "a network file system"
	}
	return ""
}
