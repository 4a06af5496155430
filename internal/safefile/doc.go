// Package safefile opens files that someone else may have put there. A run
// directory belongs to the recorder, and whoever can write into it can leave a
// symbolic link, a named pipe or a device where a run file is expected; reading
// such an entry must neither follow it out of the root nor hang (trace contract,
// section 12.6).
//
// It owns how a file is listed, looked at, opened, read and replaced. It must
// never open anything but a regular file for its content, never follow a link in
// the last element of a name, and never decide what the content means.
package safefile
