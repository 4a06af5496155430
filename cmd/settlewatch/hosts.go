package main

import (
	"path/filepath"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// host is a program that starts MCP servers (compatibility contract, "Hosts").
type host struct {
	id, name string
	key      string // member of its file that holds the servers
	comments bool   // its file may hold comments
	project  bool   // its file lies in a project, where a coding agent writes
	file     func(p places) string
	entry    func(command string, args []string) object
	after    string // what makes it notice
}

// places are the directories configuration files lie in.
type places struct {
	home, config, support, project string
	goos                           string
}

func (a *app) places() (places, error) {
	home, err := a.env.home()
	if err != nil {
		return places{}, errcode.Wrap(err, errcode.Input, "--config with the host's file", "find the home directory")
	}
	project, err := filepath.Abs(".")
	if err != nil {
		return places{}, errcode.Wrap(err, errcode.Input, "another working directory", "find the working directory")
	}
	p := places{home: home, project: project, goos: a.env.goos}
	p.config = a.env.getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(p.config) {
		p.config = filepath.Join(home, ".config")
	}
	switch p.goos {
	case "darwin":
		p.support = filepath.Join(home, "Library", "Application Support")
	case "windows":
		if p.support = a.env.getenv("APPDATA"); p.support == "" {
			p.support = filepath.Join(home, "AppData", "Roaming")
		}
	default:
		p.support = p.config
	}
	return p, nil
}

func plainEntry(command string, args []string) object {
	return object{{"command", command}, {"args", args}}
}

func typedEntry(command string, args []string) object {
	return append(object{{"type", "stdio"}}, plainEntry(command, args)...)
}

// hosts are the known ones.
var hosts = []host{
	{
		id: "claude-desktop", name: "Claude Desktop", key: "mcpServers", entry: plainEntry,
		file:  func(p places) string { return filepath.Join(p.support, "Claude", "claude_desktop_config.json") },
		after: "quit Claude Desktop and start it again",
	},
	{
		id: "claude-code", name: "Claude Code", key: "mcpServers", project: true, entry: typedEntry,
		file:  func(p places) string { return filepath.Join(p.project, ".mcp.json") },
		after: "start claude in this directory and allow the server when it asks",
	},
	{
		id: "cursor", name: "Cursor", key: "mcpServers", entry: plainEntry,
		file:  func(p places) string { return filepath.Join(p.home, ".cursor", "mcp.json") },
		after: "switch the server on in Cursor's MCP settings",
	},
	{
		id: "vscode", name: "VS Code", key: "servers", comments: true, project: true, entry: typedEntry,
		file:  func(p places) string { return filepath.Join(p.project, ".vscode", "mcp.json") },
		after: "start the server from the file itself, or with MCP: List Servers",
	},
	{
		id: "cline", name: "Cline", key: "mcpServers", entry: plainEntry,
		file: func(p places) string {
			return filepath.Join(p.support, "Code", "User", "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json")
		},
		after: "look for the server in Cline's MCP list",
	},
	{
		id: "continue", name: "Continue", key: "mcpServers", project: true, entry: plainEntry,
		file:  func(p places) string { return filepath.Join(p.project, ".continue", "mcpServers", "settlewatch.json") },
		after: "use agent mode; Continue offers MCP tools only there",
	},
	{
		id: "windsurf", name: "Windsurf", key: "mcpServers", entry: plainEntry,
		file:  func(p places) string { return filepath.Join(p.home, ".codeium", "windsurf", "mcp_config.json") },
		after: "press refresh in Windsurf's MCP list",
	},
	{
		id: "zed", name: "Zed", key: "context_servers", comments: true,
		entry: func(command string, args []string) object {
			return append(append(object{{"source", "custom"}}, plainEntry(command, args)...), member{"env", object{}})
		},
		file: func(p places) string {
			if p.goos == "windows" {
				return filepath.Join(p.support, "Zed", "settings.json")
			}
			if p.goos == "darwin" {
				return filepath.Join(p.home, ".config", "zed", "settings.json")
			}
			return filepath.Join(p.config, "zed", "settings.json")
		},
		after: "look for the server in Zed's agent settings",
	},
}
