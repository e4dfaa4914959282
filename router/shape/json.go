package shape

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
)

// encode is JSON without HTML escapes and without the newline at the end.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Event is one server-sent event, but for the newline that the gateway's delimiter adds.
func Event(data []byte) []byte {
	return append(append([]byte("data: "), data...), '\n')
}

// Done ends a stream that ended well.
var Done = []byte("data: [DONE]\n")

// Error is {"error": {...}}.
func Error(e *apierr.Error) []byte {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	b, err := encode(map[string]object{"error": {e.Message, e.Type, orNull(e.Param), orNull(e.Code)}})
	if err != nil { // strings always encode
		return []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	return b
}

// logprob is a float32 in the fewest digits; JSON has no infinity, and OpenAI writes -9999.
type logprob float64

func (l logprob) MarshalJSON() ([]byte, error) {
	v := float64(l)
	if math.IsNaN(v) || v < -9999 {
		v = -9999
	}
	return strconv.AppendFloat(nil, v, 'g', -1, 32), nil
}

type usage struct {
	Prompt     uint32 `json:"prompt_tokens"`
	Completion uint32 `json:"completion_tokens"`
	Total      uint32 `json:"total_tokens"`
}

func usageOf(u *openaiv1.Usage) *usage {
	if u == nil {
		return nil
	}
	return &usage{u.PromptTokens, u.CompletionTokens, u.TotalTokens}
}

type model struct {
	ID            string `json:"id"`
	Object        string `json:"object"`
	Created       uint32 `json:"created"`
	OwnedBy       string `json:"owned_by"`
	ContextLength uint32 `json:"context_length"`
}

// Models is the body of GET /v1/models.
func Models(r *openaiv1.ListModelsResponse) ([]byte, error) {
	data := []model{}
	for _, m := range r.Data {
		data = append(data, model{m.Id, m.Object, m.Created, m.OwnedBy, m.ContextLength})
	}
	return encode(struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{r.Object, data})
}
