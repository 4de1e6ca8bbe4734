package load

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Schema returns the JSON Schema (draft 2020-12) of the lab file, made from the types that the loader decodes into.
// What spans several keys (names that must exist, addresses that must not clash) is beyond a schema: Load checks it.
func Schema() []byte {
	s := &schemaWriter{defs: map[string]any{}}
	root := s.structure(reflect.TypeFor[rawLab]())
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "bootlab lab file"
	root["$defs"] = s.defs
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // only maps, slices and plain values
	}
	return append(out, '\n')
}

// A schemaWriter makes JSON Schemas of raw types. Structs are described once, in defs.
type schemaWriter struct{ defs map[string]any }

// of returns the schema of the value that p points to.
func (s *schemaWriter) of(p any) any {
	if v, ok := p.(value); ok {
		return v.schema(s)
	}
	t := reflect.TypeOf(p).Elem()
	name := strings.ToLower(strings.TrimPrefix(t.Name(), "raw"))
	if _, ok := s.defs[name]; !ok {
		s.defs[name] = nil // taken, for types that hold themselves
		s.defs[name] = s.structure(t)
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (s *schemaWriter) structure(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		property := map[string]any{"description": describeField(f)}
		for k, v := range s.field(f.Type) {
			if _, ok := property[k]; !ok {
				property[k] = v
			}
		}
		properties[f.Tag.Get("yaml")] = property
		if f.Tag.Get("req") != "" {
			required = append(required, f.Tag.Get("yaml"))
		}
	}
	m := map[string]any{
		"type": nullable("object"), "properties": properties, "additionalProperties": false,
	}
	if len(required) > 0 {
		m["required"] = required
	}
	return m
}

func (s *schemaWriter) field(t reflect.Type) map[string]any {
	schema := s.of(reflect.New(t).Interface())
	if m, ok := schema.(map[string]any); ok {
		return m
	}
	return schema.(spec)
}

func describeField(f reflect.StructField) string {
	text := f.Tag.Get("doc")
	if def := f.Tag.Get("def"); def != "" {
		text += " Default: " + def + "."
	}
	return text
}

// nullable says that an empty value stands for an empty collection.
func nullable(kind string) []string { return []string{kind, "null"} }

func (s *scalar[T]) schema(*schemaWriter) any { return textOf(&s.V).spec() }

func (l *list[T]) schema(s *schemaWriter) any {
	return map[string]any{"type": nullable("array"), "items": s.of(new(T))}
}

func (l *oneOrMore[T]) schema(s *schemaWriter) any {
	many := map[string]any{"type": "array", "items": s.of(new(scalar[T]))} // not nullable: no value is an empty scalar
	return map[string]any{"anyOf": []any{s.of(new(scalar[T])), many}}
}

func (m *dict[T]) schema(s *schemaWriter) any {
	return map[string]any{"type": nullable("object"), "additionalProperties": s.of(new(T))}
}

func (o *opt[T]) schema(s *schemaWriter) any { return s.of(new(T)) }

func (e *either[S, L]) schema(s *schemaWriter) any {
	return map[string]any{"anyOf": []any{s.of(new(scalar[S])), s.of(new(L))}}
}

func (v *vars) schema(*schemaWriter) any { return map[string]any{"type": nullable("object")} }
