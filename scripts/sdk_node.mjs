// The OpenAI Node SDK as its users call it. One JSON object a line on stdin says what to do; one on stdout, what came of it.

import { createRequire } from 'node:module';
import readline from 'node:readline';
import { pathToFileURL } from 'node:url';

const [modules, base, model, tools] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { default: OpenAI } = await load('openai');
const { zodResponseFormat } = await load('openai/helpers/zod');
const { z } = await load('zod');
const { VERSION } = await load('openai/version');

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: 'sk-check', maxRetries: 0, timeout: 30_000 });
const chats = client.chat.completions;
const ask = [{ role: 'user', content: 'Tell me about seats.' }];
const weather = {
  type: 'function',
  function: {
    name: 'weather',
    description: 'The weather of a city.',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, unit: { type: 'string', enum: ['celsius', 'fahrenheit'] } },
      required: ['city', 'unit'],
      additionalProperties: false,
    },
    strict: true,
  },
};
const person = zodResponseFormat(z.object({ name: z.string(), age: z.number() }), 'person');
let held;

async function told(call) {
  try {
    await call();
  } catch (error) {
    if (error instanceof OpenAI.APIConnectionTimeoutError) return { error: 'timeout' };
    if (error instanceof OpenAI.APIError) return { error: error.status, code: error.code };
    throw error;
  }
  return { error: null };
}

const actions = {
  name: async () => `openai-node ${VERSION}`,
  models: async () => {
    const ids = [];
    for await (const each of client.models.list()) ids.push(each.id);
    return ids;
  },
  chat: async ({ tokens }) => {
    const answer = await chats.create({ model, messages: ask, max_tokens: tokens });
    const [choice] = answer.choices;
    return { text: choice.message.content, tokens: answer.usage.completion_tokens, end: choice.finish_reason };
  },
  stream: async ({ tokens }) => {
    const options = { stream: true, stream_options: { include_usage: true } };
    const pieces = [];
    let usage;
    for await (const chunk of await chats.create({ model, messages: ask, max_tokens: tokens, ...options })) {
      if (chunk.choices[0]?.delta.content) pieces.push(chunk.choices[0].delta.content);
      usage = chunk.usage ?? usage;
    }
    return { text: pieces.join(''), pieces: pieces.length, tokens: usage.completion_tokens };
  },
  responses: async ({ tokens }) => {
    const request = { model, input: 'Seats?', max_output_tokens: tokens };
    const whole = await client.responses.create(request);
    let pieces = 0;
    for await (const event of await client.responses.create({ ...request, stream: true })) {
      if (event.type === 'response.output_text.delta') pieces += 1;
    }
    return { tokens: whole.usage.output_tokens, text: whole.output_text, pieces };
  },
  call_tool: async ({ stream }) => {
    const request = { model: tools, messages: ask, tools: [weather] };
    const answer = stream ? await chats.stream(request).finalChatCompletion() : await chats.create(request);
    const [call] = answer.choices[0].message.tool_calls;
    const { id, type } = call;
    const { name, arguments: text } = call.function;
    const assistant = { role: 'assistant', tool_calls: [{ id, type, function: { name, arguments: text } }] };
    const result = { role: 'tool', tool_call_id: id, content: '4 degrees' };
    const after = await chats.create({ ...request, messages: [...ask, assistant, result] });
    return { name, arguments: JSON.parse(text), after: after.choices[0].message.content };
  },
  structured: async ({ stream }) => {
    const request = { model: tools, messages: ask, response_format: person };
    const answer = stream ? await chats.stream(request).finalChatCompletion() : await chats.parse(request);
    return answer.choices[0].message.parsed;
  },
  open: async ({ tokens, pieces }) => {
    held = await chats.create({ model, messages: ask, max_tokens: tokens, stream: true });
    const all = held[Symbol.asyncIterator]();
    for (let n = 0; n < pieces; n += 1) if ((await all.next()).done) return n;
    return pieces;
  },
  close: async () => held.controller.abort(),
  give_up: async ({ seconds }) =>
    told(() => chats.create({ model, messages: ask, max_tokens: 2000 }, { timeout: seconds * 1000 })),
  refused: async ({ retries, headers }) =>
    told(() => chats.create({ model, messages: ask, max_tokens: 1 }, { maxRetries: retries, headers })),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { action, ...options } = JSON.parse(line);
  console.log(JSON.stringify({ result: (await actions[action](options)) ?? null }));
}
