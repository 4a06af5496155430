package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// Host is a program that starts MCP servers.
type Host struct {
	ID, Name string
	Key      string // member of its file that holds the servers
	Comments bool   // its file may hold comments
	Project  bool   // its file lies in a project, where a coding agent writes
	After    string // what makes it notice

	file          func(p Places) string
	before, after string // members of an entry beside the command, as JSON
}

// Places are the directories configuration files lie in.
type Places struct {
	Home, Project string
	Config        string // of a user
	Support       string // of applications

	goos string
}

// PlacesOf are the places of a system. What it has in its environment counts where it
// can.
func PlacesOf(goos, home, project string, getenv func(string) string) Places {
	p := Places{Home: home, Project: project, Config: getenv("XDG_CONFIG_HOME"), goos: goos}
	if !filepath.IsAbs(p.Config) {
		p.Config = filepath.Join(home, ".config")
	}
	switch goos {
	case "darwin":
		p.Support = filepath.Join(home, "Library", "Application Support")
	case "windows":
		if p.Support = getenv("APPDATA"); p.Support == "" {
			p.Support = filepath.Join(home, "AppData", "Roaming")
		}
	default:
		p.Support = p.Config
	}
	return p
}

// typed begins an entry of a host that wants to know how it speaks with the server.
const typed = `"type":"stdio",`

// Known are the hosts there are.
var Known = []Host{
	{
		ID: "claude-desktop", Name: "Claude Desktop", Key: "mcpServers",
		file:  func(p Places) string { return filepath.Join(p.Support, "Claude", "claude_desktop_config.json") },
		After: "quit Claude Desktop and start it again",
	},
	{
		ID: "claude-code", Name: "Claude Code", Key: "mcpServers", Project: true, before: typed,
		file:  func(p Places) string { return filepath.Join(p.Project, ".mcp.json") },
		After: "start claude in this directory and allow the server when it asks",
	},
	{
		ID: "cursor", Name: "Cursor", Key: "mcpServers",
		file:  func(p Places) string { return filepath.Join(p.Home, ".cursor", "mcp.json") },
		After: "switch the server on in Cursor's MCP settings",
	},
	{
		ID: "vscode", Name: "VS Code", Key: "servers", Comments: true, Project: true, before: typed,
		file:  func(p Places) string { return filepath.Join(p.Project, ".vscode", "mcp.json") },
		After: "start the server from the file itself, or with MCP: List Servers",
	},
	{
		ID: "cline", Name: "Cline", Key: "mcpServers",
		file: func(p Places) string {
			return filepath.Join(p.Support, "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
		},
		After: "look for the server in Cline's MCP list",
	},
	{
		ID: "continue", Name: "Continue", Key: "mcpServers", Project: true,
		file:  func(p Places) string { return filepath.Join(p.Project, ".continue", "mcpServers", "settlewatch.json") },
		After: "use agent mode; Continue offers MCP tools only there",
	},
	{
		ID: "windsurf", Name: "Windsurf", Key: "mcpServers",
		file:  func(p Places) string { return filepath.Join(p.Home, ".codeium", "windsurf", "mcp_config.json") },
		After: "press refresh in Windsurf's MCP list",
	},
	{
		ID: "zed", Name: "Zed", Key: "context_servers", Comments: true, before: `"source":"custom",`, after: `,"env":{}`,
		file: func(p Places) string {
			if p.goos == "windows" {
				return filepath.Join(p.Support, "Zed", "settings.json")
			}
			if p.goos == "darwin" {
				return filepath.Join(p.Home, ".config", "zed", "settings.json")
			}
			return filepath.Join(p.Config, "zed", "settings.json")
		},
		After: "look for the server in Zed's agent settings",
	},
}

// File is where the host's file lies, unless a person has it elsewhere.
func (h *Host) File(p Places) string { return h.file(p) }

// Entry is what the host is told to start, as compact JSON. Hosts start servers in
// directories of their own, so every path in it has to be absolute.
func (h *Host) Entry(command string, args []string) []byte {
	out := jsjson.AppendString([]byte("{"+h.before+`"command":`), []byte(command))
	out = append(out, `,"args":[`...)
	for i, arg := range args {
		if i > 0 {
			out = append(out, ',')
		}
		out = jsjson.AppendString(out, []byte(arg))
	}
	return append(append(append(out, ']'), h.after...), '}')
}

// maxFile bounds a host's file that is read.
const maxFile = 16 << 20

// State is what a host's file has of a server.
type State string

// What a file may have of a server.
const (
	NoFile       State = "no file"
	Unreadable   State = "cannot be read"
	NotJSON      State = "not plain JSON" // it may hold comments
	NotInstalled State = "not installed"
	Installed    State = "installed"
)

// Server is what a host's file says of a server.
type Server struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// Path is the value of a flag that names a file or directory; "" when that cannot be
// told, as for one that depends on where the host starts the server.
func (s Server) Path(flag string) string {
	for i, arg := range s.Args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok && filepath.IsAbs(value) {
			return filepath.Clean(value)
		}
		if arg == flag && i+1 < len(s.Args) && filepath.IsAbs(s.Args[i+1]) {
			return filepath.Clean(s.Args[i+1])
		}
	}
	return ""
}

// Look says whether a file names a server, and what the host would start.
func (h *Host) Look(file, name string) (State, Server) {
	data, err := safefile.ReadFile(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return NoFile, Server{}
	}
	if err != nil {
		return Unreadable, Server{}
	}
	var top, servers map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(data, byteOrderMark), &top) != nil {
		return NotJSON, Server{}
	}
	if json.Unmarshal(top[h.Key], &servers) != nil || servers[name] == nil {
		return NotInstalled, Server{}
	}
	var found Server
	_ = json.Unmarshal(servers[name], &found) // what is of another kind starts nothing
	return Installed, found
}

// Install puts an entry into a file, which it makes where there is none. It gives the
// path of the copy of the old file, "" when there was no file or it has the entry
// already. [ErrNotJSON] is among its errors.
func (h *Host) Install(file, name string, entry []byte, now time.Time) (backup string, changed bool, err error) {
	perm := fs.FileMode(0o600)
	old, err := safefile.ReadFile(file, maxFile)
	exists := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return "", false, err
		}
	case err != nil:
		return "", false, err
	default:
		if info, err := os.Lstat(file); err == nil {
			perm = info.Mode().Perm()
		}
	}
	merged, err := merge(old, h.Key, name, entry)
	if err != nil {
		return "", false, err
	}
	if exists && string(merged) == string(old) {
		return "", false, nil
	}
	if exists {
		if backup, err = backUp(file, old, perm, now); err != nil {
			return "", false, err
		}
	}
	return backup, true, safefile.WriteFile(file, merged, perm)
}

// backUp copies a file beside itself under a name that was free.
func backUp(file string, data []byte, perm fs.FileMode, now time.Time) (string, error) {
	base := file + ".backup-" + now.UTC().Format("20060102T150405Z")
	for n := 0; ; n++ {
		name := base
		if n > 0 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) && n < 100 {
			continue
		}
		if err != nil {
			// Whoever reads of the file itself must learn that another name is meant.
			return "", fmt.Errorf("a copy of it cannot be kept as %s: %w", plain.Quote(filepath.Base(name), plain.Detail), errcode.Bare(err))
		}
		_, err = f.Write(data)
		if err == nil {
			err = f.Sync()
		}
		return name, errors.Join(err, f.Close())
	}
}
