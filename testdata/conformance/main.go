// Command conformance serves what the official MCP conformance suite asks a server
// for, behind the HTTP chain of the product and in the only way the product serves:
// without sessions and without streams. It is for .ci/conformance.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/mcp/transport"
)

func main() {
	addr := flag.String("http", "localhost:8125", "HOST:PORT to serve at")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, *addr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, addr string) error {
	c := transport.Defaults()
	c.Addr, c.NoAuth, c.Now = addr, true, time.Now
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c.Origins = []string{"http://" + addr}                  // what the suite's client sends
	c.Rate, c.MaxConns, c.MaxConnsPerClient = 1<<20, 64, 64 // it is one client, and in a hurry
	l, err := transport.Listen(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "serving fixtures over HTTP on", l.Addr())
	return l.Serve(ctx, server.NewStreamableHTTPServer(fixtures(),
		server.WithStateLess(true), server.WithDisableStreaming(true), server.WithDisableLocalhostProtection(true)))
}

// The suite compares these texts, or looks for parts of them.
const (
	// A picture of one pixel, and a sound of one sample.
	pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	sound = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func fixtures() *server.MCPServer {
	s := server.NewMCPServer("settlewatch-conformance", "1.0.0", server.WithToolCapabilities(false), server.WithResourceCapabilities(true, false),
		server.WithPromptCapabilities(false), server.WithCompletions(), server.WithLogging(), server.WithRecovery(), server.WithResourceRecovery())
	tools(s)
	resources(s)
	prompts(s)
	return s
}

func text(t string) mcp.Content { return mcp.NewTextContent(t) }

func embedded(uri, kind, t string) mcp.Content {
	return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: kind, Text: t})
}

func tools(s *server.MCPServer) {
	for _, tool := range []struct {
		name, about string
		content     []mcp.Content
	}{
		{"test_simple_text", "answers with text", []mcp.Content{text("This is a simple text response for testing.")}},
		{"test_image_content", "answers with a picture", []mcp.Content{mcp.NewImageContent(pixel, "image/png")}},
		{"test_audio_content", "answers with a sound", []mcp.Content{mcp.NewAudioContent(sound, "audio/wav")}},
		{"test_embedded_resource", "answers with a resource", []mcp.Content{
			embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."),
		}},
		{"test_multiple_content_types", "answers with a text, a picture and a resource", []mcp.Content{
			text("Multiple content types test:"), mcp.NewImageContent(pixel, "image/png"),
			embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
		}},
	} {
		s.AddTool(mcp.NewTool(tool.name, mcp.WithDescription(tool.about)), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: tool.content}, nil
		})
	}
	s.AddTool(mcp.NewTool("test_error_handling", mcp.WithDescription("fails")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
	})
	s.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "takes what draft 2020-12 of JSON Schema can say", json.RawMessage(`{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"$defs": {"address": {"$anchor": "address", "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
		"properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}, "kind": {"type": "string"}, "phone": {"type": "string"}},
		"allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
		"if": {"properties": {"kind": {"const": "person"}}}, "then": {"required": ["name"]}, "else": {"required": ["address"]},
		"additionalProperties": false}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("done"), nil
		})
}

func resources(s *server.MCPServer) {
	s.AddResource(mcp.NewResource("test://static-text", "static text", mcp.WithResourceDescription("a text"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."}}, nil
		})
	s.AddResource(mcp.NewResource("test://static-binary", "static bytes", mcp.WithResourceDescription("a picture"), mcp.WithMIMEType("image/png")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: pixel}}, nil
		})
	s.AddResource(mcp.NewResource("test://watched-resource", "watched", mcp.WithResourceDescription("a text nobody changes"), mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "as it was"}}, nil
		})
	s.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateDescription("a text for each id"), mcp.WithTemplateMIMEType("application/json")),
		func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			id, ok := strings.CutSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			if !ok {
				return nil, errors.New("the address has another form")
			}
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id)}}, nil
		})
}

func prompts(s *server.MCPServer) {
	user := func(content ...mcp.Content) *mcp.GetPromptResult {
		var messages []mcp.PromptMessage
		for _, c := range content {
			messages = append(messages, mcp.PromptMessage{Role: mcp.RoleUser, Content: c})
		}
		return &mcp.GetPromptResult{Messages: messages}
	}
	s.AddPrompt(mcp.NewPrompt("test_simple_prompt", mcp.WithPromptDescription("one message")),
		func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return user(text("This is a simple prompt for testing.")), nil
		})
	s.AddPrompt(mcp.NewPrompt("test_prompt_with_arguments", mcp.WithPromptDescription("a message with two arguments in it"),
		mcp.WithArgument("arg1", mcp.ArgumentDescription("the first"), mcp.RequiredArgument()),
		mcp.WithArgument("arg2", mcp.ArgumentDescription("the second"), mcp.RequiredArgument())),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return user(text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", r.Params.Arguments["arg1"], r.Params.Arguments["arg2"]))), nil
		})
	s.AddPrompt(mcp.NewPrompt("test_prompt_with_embedded_resource", mcp.WithPromptDescription("a resource and a message"),
		mcp.WithArgument("resourceUri", mcp.ArgumentDescription("address of the resource"), mcp.RequiredArgument())),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return user(embedded(r.Params.Arguments["resourceUri"], "text/plain", "Embedded resource content for testing."), text("Please process the embedded resource above.")), nil
		})
	s.AddPrompt(mcp.NewPrompt("test_prompt_with_image", mcp.WithPromptDescription("a picture and a message")),
		func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return user(mcp.NewImageContent(pixel, "image/png"), text("Please analyze the image above.")), nil
		})
}
