// Keeps every listener of a Node program on the loopback interface: node --import ./loopback.mjs program.js
import net from 'node:net';

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (where, ...rest) {
  const isPort = typeof where === 'number' || (typeof where === 'string' && /^\d+$/.test(where));
  if (isPort) {
    const done = rest.filter((value) => typeof value === 'function');
    return listen.call(this, { port: Number(where), host: '127.0.0.1' }, ...done);
  }
  const hasPort = where !== null && typeof where === 'object' && 'port' in where;
  return listen.call(this, hasPort ? { ...where, host: '127.0.0.1' } : where, ...rest);
};
