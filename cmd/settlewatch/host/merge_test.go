package host

import (
	"encoding/json"
	"strings"
	"testing"
)

var testEntry = (&Host{}).Entry("/bin/sw", []string{"serve", "--dir", "/a b/.trace"})

func TestMerge(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"an empty file becomes a document", "", `{
  "mcpServers": {
    "sw": {
      "command": "/bin/sw",
      "args": [
        "serve",
        "--dir",
        "/a b/.trace"
      ]
    }
  }
}
`},
		{"an empty object gets the member", "{}", `{"mcpServers":{"sw":{"command":"/bin/sw","args":["serve","--dir","/a b/.trace"]}}}`},
		{"members keep their order, spelling and layout", `{
    "z": 1.0,   "1": [ 1,2 ],
    "a": {"b":	null}

}
`, `{
    "z": 1.0,   "1": [ 1,2 ],
    "a": {"b":	null},
    "mcpServers": {
        "sw": {
            "command": "/bin/sw",
            "args": [
                "serve",
                "--dir",
                "/a b/.trace"
            ]
        }
    }

}
`},
		{"other servers stay", "{\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\": \"x\"}\n\t}\n}", "{\n\t\"mcpServers\": {\n\t\t\"other\": {\"command\": \"x\"},\n\t\t\"sw\": {\n\t\t\t\"command\": \"/bin/sw\",\n\t\t\t\"args\": [\n\t\t\t\t\"serve\",\n\t\t\t\t\"--dir\",\n\t\t\t\t\"/a b/.trace\"\n\t\t\t]\n\t\t}\n\t}\n}"},
		{"an old entry is replaced where it stands", `{"mcpServers":{"sw":{"command":"old"},"b":{}},"c":1}`, `{"mcpServers":{"sw":{"command":"/bin/sw","args":["serve","--dir","/a b/.trace"]},"b":{}},"c":1}`},
		{"an empty list of servers is filled", "{\r\n  \"mcpServers\": {  }\r\n}\r\n", "{\r\n  \"mcpServers\": {\r\n    \"sw\": {\r\n      \"command\": \"/bin/sw\",\r\n      \"args\": [\r\n        \"serve\",\r\n        \"--dir\",\r\n        \"/a b/.trace\"\r\n      ]\r\n    }\r\n  }\r\n}\r\n"},
		{"a byte order mark stays", "\xef\xbb\xbf{\"a\":1}", "\xef\xbb\xbf{\"a\":1,\"mcpServers\":{\"sw\":{\"command\":\"/bin/sw\",\"args\":[\"serve\",\"--dir\",\"/a b/.trace\"]}}}"},
		{"a member of the same name deeper down is not meant", `{"x":{"mcpServers":{}}}`, `{"x":{"mcpServers":{}},"mcpServers":{"sw":{"command":"/bin/sw","args":["serve","--dir","/a b/.trace"]}}}`},
		{"a member that differs in case is not meant", `{"MCPServers":{}}`, `{"MCPServers":{},"mcpServers":{"sw":{"command":"/bin/sw","args":["serve","--dir","/a b/.trace"]}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := merge([]byte(c.src), "mcpServers", "sw", testEntry)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			again, err := merge(got, "mcpServers", "sw", testEntry)
			if err != nil || !json.Valid([]byte(strings.TrimPrefix(string(again), "\xef\xbb\xbf"))) {
				t.Errorf("merging again: %v", err)
			}
			if string(again) != string(got) {
				t.Errorf("merging again changed it to\n%s", again)
			}
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"comments", "{ // hi\n}", "not JSON"},
		{"a trailing comma", `{"a":1,}`, "not JSON"},
		{"two documents", `{} {}`, "not JSON"},
		{"a list", `[]`, "not an object"},
		{"servers that are a list", `{"mcpServers":[]}`, "not an object"},
		{"servers that are null", `{"mcpServers":null}`, "not an object"},
		{"servers given twice", `{"mcpServers":{},"mcpServers":{}}`, "twice"},
		{"our own entry given twice", `{"mcpServers":{"sw":1,"\u0073w":2}}`, "twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := merge([]byte(c.src), "mcpServers", "sw", testEntry)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, %v; want an error with %q", got, err, c.want)
			}
		})
	}
}

func FuzzMerge(f *testing.F) {
	f.Add(`{"a":1,"mcpServers":{"b":{}}}`)
	f.Add("{\n  \"mcpServers\": {\n  }\n}\n")
	f.Add(`{"\u006dcpServers":{"sw":[]}}`)
	f.Fuzz(func(t *testing.T, src string) {
		got, err := merge([]byte(src), "mcpServers", "sw", testEntry)
		if err != nil {
			return
		}
		body := strings.TrimPrefix(string(got), "\xef\xbb\xbf")
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &after); err != nil {
			t.Fatalf("%q became %q: %v", src, got, err)
		}
		json.Unmarshal([]byte(strings.TrimPrefix(src, "\xef\xbb\xbf")), &before)
		for name, value := range before {
			if name != "mcpServers" && string(after[name]) != string(value) {
				t.Fatalf("%q: member %q became %q", src, name, after[name])
			}
		}
		var servers map[string]json.RawMessage
		if err := json.Unmarshal(after["mcpServers"], &servers); err != nil || servers["sw"] == nil {
			t.Fatalf("%q became %q, without the entry", src, got)
		}
	})
}
