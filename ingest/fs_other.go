//go:build !linux

package ingest

// remoteFileSystem cannot tell here; the regular full pass covers what
// notifications miss.
func remoteFileSystem(string) string { return "" }
