// Package host knows the programs that start MCP servers, and the files in which they
// are told to (compatibility contract, "Hosts").
//
// It owns which hosts there are, where their files lie, what an entry looks like in
// each of them, what a file says of a server, and how an entry is put into one.
//
// Such a file is a person's and belongs to other programs as well. An entry is merged
// into its text: every byte around it stays as it is, and a copy of what was there is
// left beside it. What is not plain JSON, or names a member twice, is left alone, since
// nobody can say what its host makes of it.
//
// It must never decide what a server is started with, tell a person anything, or read
// the clock or the environment: directories and times are handed to it.
package host
