package record

import "leasehold.dev/mesh/audit/event"

// Audit is what the audit log keeps of r, which has ended. Counts that were not verified are left out.
func (r *Request) Audit() event.Response {
	out := event.Response{Request: r.ID, Tenant: r.Tenant, Endpoint: r.Endpoint, Model: r.Model, Stream: r.Stream, Outcome: r.Outcome,
		StartMS: r.Start.UnixMilli(), TotalUS: int64(r.TotalMS * 1000), Choices: []event.Choice{}}
	for _, c := range r.Choices {
		e := event.Choice{Admission: c.AdmissionID, Prefill: c.Prefill, Decode: c.Decode, VerdictsEqual: c.VerdictsEqual, Error: event.Clip(c.Error),
			PromptTokens: c.PromptTokens, CompletionTokens: c.CompletionTokens, OutputDigest: c.OutputDigest, LogitDigest: c.LogitDigest,
			FinishReason: c.FinishReason, GuardsOn: c.GuardsOn}
		if c.VerdictsEqual {
			e.Pages, e.Root = c.PagesMoved, c.Root
		}
		out.Choices = append(out.Choices, e)
	}
	return out
}
